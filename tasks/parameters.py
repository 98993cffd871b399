"""The core's settings as Prefect shows them: a form with descriptions, choices and bounds that refuses unknown keys.

In goes the JSON of a run's parameters, out come the core's own frozen dataclasses, which the command line uses as well: a
run is named by its settings, and must be the same run from both. Prefect checks the JSON when the run is created.
"""

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetPydanticSchema
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from tasks.core.config import (
    MAX_REJECT_RATE,
    EngineConfig,
    GroupConfig,
    JournalConfig,
    ModelConfig,
    PowerConfig,
    RowConfig,
    SamplingDefaults,
)
from tasks.core.moment import WANTED, moment
from tasks.ingest.finding.source_toml import rows_of

_MODEL, _SAMPLING, _GROUP = ModelConfig(), SamplingDefaults(), GroupConfig()
_ENGINE, _JOURNAL, _POWER = EngineConfig(), JournalConfig(), PowerConfig()


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


class Rows(_Form):
    """How plain rows become requests; rows of an OpenAI Batch file need none of it."""

    format: str | None = Field(default=None, description="Format of all files; by their endings when empty.")
    prompt_column: str = Field(default="prompt", description="Field that holds the prompt.")
    messages_column: str = Field(default="messages", description="Field that holds a chat.")
    id_column: str | None = Field(default=None, description="Field that holds the id.")
    system: str | None = Field(default=None, description="System prompt for chats that have none.")
    encoding: str | None = Field(default=None, description="Encoding of text files; UTF-8 and what a file shows when empty.")
    record_path: str | None = Field(default=None, description="Where the rows are in JSON, such as data.items.")
    prompt_template: str | None = Field(default=None, description="Makes the prompt of a row's fields, as Jinja2; @FILE.")
    truncate_prompt: str | None = Field(
        default=None,
        description="What a prompt beyond the model's context loses: head, tail or middle; rejected when empty.",
    )
    fields: list[str] = Field(default=[], description="Fields at the template's place {{ fields }}; all when empty.")
    reorder_fields: bool = Field(
        default=False, description="Put them into the order that lets prompts share the longest beginnings with others."
    )
    max_reject_rate: float = Field(
        default=MAX_REJECT_RATE, ge=0, le=1, description="Stop before the engine starts when more is rejected."
    )

    @property
    def config(self) -> RowConfig:
        """The settings that hold for every row. A template file is read where this is asked, on the worker."""
        return rows_of({key: value for key, value in self if key != "max_reject_rate"})


class Model(_Form):
    """Which model answers."""

    name: str = Field(
        default=_MODEL.name, description="A model folder, a Hugging Face name, or echo for a dry run without a model."
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(default="auto", description="Precision of the weights.")
    max_model_len: int | None = Field(default=None, ge=2, description="Context in tokens; the model's own by default.")
    served_model_names: list[str] = Field(
        default=[], description="What body.model may say besides the model's own name; * for any."
    )


class Sampling(_Form):
    """What a request gets that does not say otherwise."""

    max_tokens: int = Field(default=_SAMPLING.max_tokens, ge=1, description="Most output tokens of an answer.")
    temperature: float = Field(default=_SAMPLING.temperature, ge=0, le=2, description="0 is greedy.")
    seed: int = Field(default=_SAMPLING.seed, description="Source of the seeds of sampled requests that bring none.")
    top_p: float = Field(default=_SAMPLING.top_p, gt=0, le=1, description="Share of the likeliest tokens to sample from.")
    top_k: int = Field(default=_SAMPLING.top_k, ge=0, lt=2**31, description="Number of them; 0 for all.")
    stop: list[str] = Field(default=[], description="Texts that end an answer.")


class Group(_Form):
    """How requests are brought together."""

    encoder: str = Field(
        default=_GROUP.encoder, description="The sentence encoder that near-duplicates are told by, by name or as a folder."
    )
    max_learnt_answers: int = Field(
        default=_GROUP.max_learnt_answers, ge=0, description="Answers of earlier runs that lengths are learnt from."
    )
    max_group_tokens: int = Field(default=_GROUP.max_group_tokens, ge=1, description="Prompt tokens of a group at most.")
    max_group_rows: int = Field(default=_GROUP.max_group_rows, ge=1, description="Requests of a group at most.")
    blend: bool = Field(default=False, description="Mix prefill-heavy and decode-heavy work; may pay on a GPU.")
    near_duplicates: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Cosine from which a request gets the answer of an earlier one that is nearly equal; never when empty.",
    )


class Engine(_Form):
    """vLLM's settings by their own names, chosen for the device when empty, and the supervisor's patience."""

    max_num_seqs: int | None = Field(default=None, ge=1, description="Most sequences in flight.")
    max_num_batched_tokens: int | None = Field(default=None, ge=1, description="Most tokens in one engine step.")
    block_size: int | None = Field(default=None, ge=1, description="Tokens in one block of the KV cache.")
    kv_cache_memory_bytes: int | None = Field(default=None, ge=1, description="Memory of the KV cache.")
    start_timeout_s: float = Field(default=_ENGINE.start_timeout_s, gt=0, description="Longest wait for the model to load.")
    stall_timeout_s: float = Field(default=_ENGINE.stall_timeout_s, gt=0, description="Longest wait for one step.")
    max_restarts: int = Field(
        default=_ENGINE.max_restarts, ge=0, description="Deaths in a row, without a token, that are forgiven."
    )


class Journal(_Form):
    """What a generated token survives."""

    durability: Literal["process", "power"] = Field(
        default="power", description="process: SIGKILL of anything; power: a power cut as well, but for the last interval."
    )
    sync_interval_s: float = Field(
        default=_JOURNAL.sync_interval_s, gt=0, description="Seconds between two syncs of the journal to the disk."
    )
    segment_bytes: int = Field(default=_JOURNAL.segment_bytes, ge=4096, description="Size of one file of the journal.")
    compact_bytes: int = Field(
        default=_JOURNAL.compact_bytes, ge=0, description="A resume puts a larger journal into one segment, where that pays."
    )


def _meant(text: str) -> str:
    try:
        moment(text, datetime.now(UTC))
    except ValueError as error:
        raise ValueError(f"{text!r} is no moment; give {WANTED}") from error
    return text


class Power(_Form):
    """What is done about heat and power of a GPU."""

    control: Literal["off", "observe", "managed"] = Field(
        default="observe",
        description="observe: read the GPU, run fewer sequences when it is hot; managed: also set its clock and power "
        "limit, and put back what was there.",
    )
    max_temperature_c: float = Field(
        default=_POWER.max_temperature_c, ge=40, le=100, description="The GPU stays below this, or its own limits."
    )
    finish_by: Annotated[str, AfterValidator(_meant)] | None = Field(
        default=None, description="Take as little energy as can be and still end by then: 06:30, or 06:30 Europe/Berlin."
    )
    period_s: float = Field(default=_POWER.period_s, ge=0.1, le=10, description="Seconds between two readings.")


def _read_as(form: type[_Form], settings: type[Any]) -> GetPydanticSchema:
    """Check against the form, or take the dataclass as it is, and hand over the dataclass."""

    def to_settings(filled: _Form) -> Any:
        return settings(**{key: tuple(value) if isinstance(value, list) else value for key, value in filled})

    def schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(to_settings, handler(form))

    return GetPydanticSchema(schema)


def _known(timezone: str) -> str:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{timezone!r} is no timezone; give an IANA name such as America/New_York") from error
    return timezone


ModelParameter = Annotated[ModelConfig, _read_as(Model, ModelConfig)]
SamplingParameter = Annotated[SamplingDefaults, _read_as(Sampling, SamplingDefaults)]
GroupParameter = Annotated[GroupConfig, _read_as(Group, GroupConfig)]
EngineParameter = Annotated[EngineConfig, _read_as(Engine, EngineConfig)]
PowerParameter = Annotated[PowerConfig, _read_as(Power, PowerConfig)]
JournalParameter = Annotated[JournalConfig, _read_as(Journal, JournalConfig)]
Timezone = Annotated[str, AfterValidator(_known)]
OptionalDate = Annotated[date | None, Field(json_schema_extra={"pattern": r"^\d{4}-\d\d-\d\d$"})]
