"""The command line's options in groups that several verbs share, and how a verb takes a group as one argument.

A group is a frozen dataclass whose fields are typer options; each group makes the core's settings of itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tasks.core.config import (
    MAX_REJECT_RATE,
    Config,
    EngineConfig,
    GroupConfig,
    InputConfig,
    JournalConfig,
    ModelConfig,
    PowerConfig,
    RowConfig,
    SamplingDefaults,
)

_ROWS, _MODEL, _SAMPLING, _ENGINE, _JOURNAL = RowConfig(), ModelConfig(), SamplingDefaults(), EngineConfig(), JournalConfig()
_POWER = PowerConfig()


def takes(**groups: type[Any]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a verb the options of these groups; it gets each group, filled, under its name."""

    def decorate(verb: Callable[..., int]) -> Callable[..., int]:
        def called(**given: Any) -> int:
            for name, group in groups.items():
                given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
            return verb(**given)

        own = signature(verb, eval_str=True).parameters.values()
        before = [one for one in own if one.name not in groups and one.default is Parameter.empty]
        behind = [one for one in own if one.name not in groups and one.default is not Parameter.empty]
        shared = [option for group in groups.values() for option in _options(group)]
        called.__signature__ = signature(verb).replace(parameters=[*before, *shared, *behind])  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in (*before, *shared, *behind)}
        called.__name__, called.__doc__ = verb.__name__, verb.__doc__
        return called

    return decorate


def _options(group: type[Any]) -> list[Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, default=field.default, annotation=kinds[field.name])
        for field in fields(group)
    ]


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is."""

    data: Annotated[Path, typer.Option("--data", help="Root of requests, results and the DuckDB database.")] = Path("data")
    checkpoints: Annotated[Path, typer.Option("--checkpoints", help="Root of the token journals that a resume reads.")] = (
        Path("checkpoints")
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """How rows become requests."""

    source: Annotated[str | None, typer.Option(help="Source of all rows; the file's or folder's name if unset.")] = None
    format: Annotated[
        str | None,
        typer.Option(
            help="jsonl, json, csv, tsv, txt, parquet, arrow or document (a file, a prompt), whatever endings say."
        ),
    ] = _ROWS.format
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of text files, such as cp1252; UTF-8 and what a file itself shows if unset.")
    ] = _ROWS.encoding
    record_path: Annotated[
        str | None,
        typer.Option(help="Where the rows are in JSON: data.items; lists on the way are walked, commas part several paths."),
    ] = _ROWS.record_path
    prompt_column: Annotated[str, typer.Option(help="Field of plain rows that holds the prompt.")] = _ROWS.prompt_column
    messages_column: Annotated[str, typer.Option(help="Field of plain rows that holds a chat.")] = _ROWS.messages_column
    id_column: Annotated[
        str | None, typer.Option(help="Field of plain rows that holds the id, such as key or meta.key.")
    ] = _ROWS.id_column
    prompt_template: Annotated[
        str | None,
        typer.Option(help='Makes the prompt of a row\'s fields, as Jinja2: "Summarise: {{ title }}"; @FILE reads it.'),
    ] = _ROWS.prompt_template
    system: Annotated[str | None, typer.Option(help="System prompt for chats that have none.")] = _ROWS.system
    truncate_prompt: Annotated[
        str | None,
        typer.Option(help="What a prompt beyond the model's context loses: head, tail or middle; rejected if unset."),
    ] = _ROWS.truncate_prompt
    fields: Annotated[
        str | None,
        typer.Option(
            help="Fields that the template puts, a line each, where it says {{ fields }}: brand,title; all if unset."
        ),
    ] = None
    reorder_fields: Annotated[
        bool,
        typer.Option(
            "--reorder-fields", help="Put them into the order that lets prompts share the longest beginnings with others."
        ),
    ] = _ROWS.reorder_fields
    max_reject_rate: Annotated[
        float,
        typer.Option("--max-reject-rate", help="Stop before the engine starts when more rows than this are rejected."),
    ] = MAX_REJECT_RATE

    def config(self, paths: Sequence[str | Path]) -> InputConfig:
        """These files, read so. Raises ConfigError for a template file that cannot be read."""
        from tasks.ingest.finding.source_toml import rows_of

        rows = rows_of({field.name: getattr(self, field.name) for field in fields(RowConfig)})
        return InputConfig(tuple(paths), self.source, self.max_reject_rate, rows)


@dataclass(frozen=True, slots=True)
class Answers:
    """Which model answers, and how, where a row does not say."""

    model: Annotated[
        str, typer.Option("--model", help="A model folder, a Hugging Face name, or echo for a dry run without a model.")
    ] = _MODEL.name
    dtype: Annotated[str, typer.Option("--dtype", help="auto, bfloat16, float16 or float32.")] = _MODEL.dtype
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", help="Context in tokens; the model's own by default.")
    ] = None
    served_model_name: Annotated[
        list[str] | None,
        typer.Option("--served-model-name", help="A name that body.model may have besides the model's own; * for any."),
    ] = None
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Output tokens of a request that does not say.")] = (
        _SAMPLING.max_tokens
    )
    temperature: Annotated[float, typer.Option("--temperature", help="For requests that do not say; 0 is greedy.")] = (
        _SAMPLING.temperature
    )
    seed: Annotated[int, typer.Option("--seed", help="Source of the seeds of sampled requests that bring none.")] = (
        _SAMPLING.seed
    )

    @property
    def model_config(self) -> ModelConfig:
        return ModelConfig(self.model, self.dtype, self.max_model_len, tuple(self.served_model_name or ()))

    @property
    def sampling(self) -> SamplingDefaults:
        return SamplingDefaults(self.max_tokens, self.temperature, self.seed)


@dataclass(frozen=True, slots=True)
class Groups:
    """How requests are brought together."""

    merge_near_duplicates: Annotated[
        float | None,
        typer.Option(
            help="Cosine, such as 0.98, from which a request gets the answer of an earlier one whose last user's text, "
            "and nothing else, is different; never if unset."
        ),
    ] = None
    blend: Annotated[
        bool,
        typer.Option("--blend", help="Mix prefill-heavy and decode-heavy work; may pay on a GPU, does not on a CPU."),
    ] = False

    @property
    def config(self) -> GroupConfig:
        return GroupConfig(near_duplicates=self.merge_near_duplicates, blend=self.blend)


@dataclass(frozen=True, slots=True)
class Engine:
    """How the engine runs and what a token survives."""

    max_num_seqs: Annotated[
        int | None, typer.Option("--max-num-seqs", help="Most sequences in flight; by device if unset.")
    ] = None
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option("--max-num-batched-tokens", help="Tokens in one step of the engine at most; by device if unset."),
    ] = None
    block_size: Annotated[
        int | None, typer.Option("--block-size", help="Tokens in one block of the KV cache; by device if unset.")
    ] = None
    kv_cache_memory_bytes: Annotated[
        int | None, typer.Option("--kv-cache-memory-bytes", help="Bytes of the KV cache; by device if unset.")
    ] = None
    durability: Annotated[
        str,
        typer.Option(
            "--durability",
            help="What a generated token survives: process (any SIGKILL) or power (a power cut as well, but for a second).",
        ),
    ] = _JOURNAL.durability
    stall_timeout_s: Annotated[
        float,
        typer.Option("--stall-timeout-s", help="An engine that makes no step for so long is killed and started again."),
    ] = _ENGINE.stall_timeout_s

    @property
    def config(self) -> EngineConfig:
        return EngineConfig(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            kv_cache_memory_bytes=self.kv_cache_memory_bytes,
            stall_timeout_s=self.stall_timeout_s,
        )

    @property
    def journal(self) -> JournalConfig:
        return JournalConfig(self.durability)


@dataclass(frozen=True, slots=True)
class Power:
    """What is done about heat and power of a GPU."""

    power: Annotated[
        str,
        typer.Option(
            "--power",
            help="observe: read the GPU, run fewer sequences when it is hot; managed: also set its clock and power limit, "
            "and put back what was there; off.",
        ),
    ] = _POWER.control
    max_temperature: Annotated[
        float, typer.Option("--max-temperature", metavar="CELSIUS", help="The GPU stays below this, or its own limits.")
    ] = _POWER.max_temperature_c
    finish_by: Annotated[
        str | None,
        typer.Option(
            "--finish-by",
            metavar="TIME",
            help="With --power managed: take as little energy as can be and end by then: 06:30, 06:30 Europe/Berlin or "
            "2026-12-01T06:30.",
        ),
    ] = None

    @property
    def config(self) -> PowerConfig:
        return PowerConfig(self.power, self.max_temperature, self.finish_by)


def config_of(
    paths: Sequence[str | Path],
    rows: Rows,
    places: Places,
    answers: Answers,
    engine: Engine | None = None,
    groups: Groups | None = None,
    power: Power | None = None,
) -> Config:
    """All settings of a run."""
    how = engine or Engine()
    return Config(
        input=rows.config(paths),
        data=places.data,
        checkpoints=places.checkpoints,
        model=answers.model_config,
        sampling=answers.sampling,
        group=(groups or Groups()).config,
        engine=how.config,
        journal=how.journal,
        power=(power or Power()).config,
    )
