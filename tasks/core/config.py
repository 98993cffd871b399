"""All settings of a run, frozen and checked once; a bad value raises ConfigError and names its key.

Sizes are in tokens unless the name says bytes, times in seconds.
"""

import codecs
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from tasks.core.errors import ConfigError
from tasks.core.moment import WANTED, moment

MAX_REJECT_RATE = 0.2
FORMATS = ("jsonl", "json", "csv", "tsv", "txt", "document", "parquet", "arrow")
TRUNCATIONS = ("head", "tail", "middle")
DURABILITIES = ("process", "power")
CONTROLS = ("off", "observe", "managed")
DTYPES = ("auto", "bfloat16", "float16", "float32")


def _check(condition: bool, key: str, value: object, wanted: str) -> None:
    if not condition:
        raise ConfigError(f"{key} must be {wanted}, not {value!r}")


def _is_encoding(name: str) -> bool:
    """Whether Python has a codec of that name which makes text of bytes, a piece at a time."""
    try:
        b"a\xff".decode(name, "backslashreplace")  # refuses what is no text encoding, or gives up at the first wrong byte
        return codecs.lookup(name).incrementaldecoder is not None
    except (LookupError, UnicodeError, ValueError):
        return False


def _is_moment(text: str) -> bool:
    try:
        return moment(text, datetime.now(UTC)) is not None
    except ValueError:
        return False


def _is_text(value: str | None) -> bool:
    """Whether tables and the model's tokenizer can hold it: bytes of a command line need not be Unicode."""
    return value is None or not any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value)


@dataclass(frozen=True, slots=True)
class RowConfig:
    """How a file's rows become requests. Rows of an OpenAI Batch file need none of it but `truncate_prompt`.

    `record_path` leads to the records within nested rows; several have commas between them. `prompt_template` is Jinja2 over
    a row's fields. `truncate_prompt` says what a prompt that is longer than the model's context loses, its head, tail or
    middle; None rejects it. `fields` are those that the template puts at its place `{{ fields }}`, all of the row's if
    none; with `reorder_fields` in the order that lets the source's prompts share the longest beginnings.
    """

    format: str | None = None
    encoding: str | None = None
    record_path: str | None = None
    prompt_column: str = "prompt"
    messages_column: str = "messages"
    id_column: str | None = None
    prompt_template: str | None = None
    system: str | None = None
    truncate_prompt: str | None = None
    fields: tuple[str, ...] = ()
    reorder_fields: bool = False

    def __post_init__(self) -> None:
        _check(self.format is None or self.format in FORMATS, "format", self.format, f"one of {', '.join(FORMATS)}")
        paths = ("all" if self.record_path is None else self.record_path).split(",")
        is_path = all(name.strip() for path in paths for name in path.split("."))
        _check(is_path, "record_path", self.record_path, "names with dots between them, such as data.items")
        encoding, some = (
            self.encoding,
            "the name of an encoding, such as utf-8, cp1252, latin-1, utf-16, shift_jis or gb18030",
        )
        _check(encoding is None or _is_encoding(encoding), "encoding", encoding, some)
        for key in ("prompt_column", "messages_column", "id_column", "prompt_template", "system"):
            _check(_is_text(getattr(self, key)), key, getattr(self, key), "text in UTF-8 without a NUL")
        cut = self.truncate_prompt
        _check(cut is None or cut in TRUNCATIONS, "truncate_prompt", cut, f"one of {', '.join(TRUNCATIONS)}")
        are_names = all(name.strip() and _is_text(name) for name in self.fields)
        _check(are_names and len(set(self.fields)) == len(self.fields), "fields", list(self.fields), "names, each once")
        if self.prompt_template is None and self.places_fields:
            key = "fields" if self.fields else "reorder_fields"
            raise ConfigError(f"{key} needs a prompt_template with a place for fields: {{{{ fields }}}}")

    @property
    def places_fields(self) -> bool:
        """Whether `fields` of the template are certainly ours, and no field of the row's own."""
        return bool(self.fields) or self.reorder_fields


@dataclass(frozen=True, slots=True)
class InputConfig:
    """Where requests come from, and how rows become requests where their source says nothing else."""

    paths: tuple[str | Path, ...]
    source: str | None = None
    max_reject_rate: float = MAX_REJECT_RATE
    rows: RowConfig = field(default_factory=RowConfig)

    def __post_init__(self) -> None:
        _check(bool(self.paths), "inputs", self.paths, "at least one file or folder")
        _check(0 <= self.max_reject_rate <= 1, "max_reject_rate", self.max_reject_rate, "between 0 and 1")
        _check(self.source is None or bool(self.source.strip()), "source", self.source, "a name")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model answers. `served_model_names`: what `body.model` may say besides the model's own name; * for any."""

    name: str = "SmolLM2-135M-Instruct"
    dtype: str = "auto"
    max_model_len: int | None = None
    served_model_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        _check(self.max_model_len is None or self.max_model_len >= 2, "max_model_len", self.max_model_len, "at least 2")


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a request gets that does not say otherwise, as in SamplingParams; `top_p` and `top_k` where it is sampled.

    `seed` feeds the seeds of sampled requests that bring none.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _check(0 <= self.temperature <= 2, "temperature", self.temperature, "between 0 and 2")
        _check(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _check(0 <= self.top_k < 2**31, "top_k", self.top_k, "a number of tokens, or 0 for all")
        _check("" not in self.stop, "stop", list(self.stop), "texts that are not empty")


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """What holds for the rows of one source. Higher priority goes first, then what is due earlier; None is due any time."""

    rows: RowConfig = field(default_factory=RowConfig)
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    priority: int = 0
    deadline: datetime | None = None

    @property
    def urgency(self) -> tuple[int, float]:
        """Smaller is more urgent: by priority, then by deadline, of which none is the last."""
        return -self.priority, self.deadline.timestamp() if self.deadline else math.inf


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """How requests are brought together.

    A group has at most so many prompt tokens and requests. With `blend`, prefill-heavy and decode-heavy work is mixed.
    Answers' lengths are learnt from at most `max_learnt_answers` of earlier runs (0: not at all). With `near_duplicates`, a
    cosine, a request gets the answer of an earlier one that is at least so near by `encoder`; all texts that may be compared
    are embedded for it.
    """

    encoder: str = "all-MiniLM-L6-v2"
    near_duplicates: float | None = None
    max_group_tokens: int = 65_536
    max_group_rows: int = 256
    max_learnt_answers: int = 20_000
    blend: bool = False

    def __post_init__(self) -> None:
        _check(self.max_group_tokens >= 1, "max_group_tokens", self.max_group_tokens, "at least 1")
        _check(self.max_group_rows >= 1, "max_group_rows", self.max_group_rows, "at least 1")
        _check(self.max_learnt_answers >= 0, "max_learnt_answers", self.max_learnt_answers, "at least 0")
        near = self.near_duplicates
        _check(near is None or 0 < near <= 1, "near_duplicates", near, "a cosine above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """Budgets of one work unit."""

    max_batch_tokens: int = 65_536
    max_batch_seqs: int = 256

    def __post_init__(self) -> None:
        _check(self.max_batch_tokens >= 1, "max_batch_tokens", self.max_batch_tokens, "at least 1")
        _check(self.max_batch_seqs >= 1, "max_batch_seqs", self.max_batch_seqs, "at least 1")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """vLLM's own settings by their own names (None: chosen for the device), and the supervisor's patience."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    kv_cache_memory_bytes: int | None = None
    start_timeout_s: float = 1800.0
    stall_timeout_s: float = 120.0
    max_restarts: int = 3

    def __post_init__(self) -> None:
        for key in ("max_num_seqs", "max_num_batched_tokens", "block_size", "kv_cache_memory_bytes"):
            value = getattr(self, key)
            _check(value is None or value >= 1, key, value, "at least 1")
        _check(self.max_restarts >= 0, "max_restarts", self.max_restarts, "at least 0")
        _check(self.stall_timeout_s > 0, "stall_timeout_s", self.stall_timeout_s, "positive")


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """How safe a token is once the engine has handed it over.

    `process`: it survives SIGKILL of any process, as it is the kernel's. `power`: what is older than `sync_interval_s` (and
    the sync itself) also survives a power cut. Segments roll at `segment_bytes`; a resume that finds more than
    `compact_bytes` (half a second of reading) puts them into one, if their live tokens need less than a third of that.
    """

    durability: str = "power"
    sync_interval_s: float = 1.0
    segment_bytes: int = 64 << 20
    compact_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        _check(self.durability in DURABILITIES, "durability", self.durability, f"one of {', '.join(DURABILITIES)}")
        _check(self.sync_interval_s > 0, "sync_interval_s", self.sync_interval_s, "positive")
        _check(self.segment_bytes >= 4096, "segment_bytes", self.segment_bytes, "at least 4096")
        _check(self.compact_bytes >= 0, "compact_bytes", self.compact_bytes, "at least 0")

    @property
    def sync_every_s(self) -> float | None:
        """Seconds between two syncs, or None when the journal need not survive a power cut."""
        return self.sync_interval_s if self.durability == "power" else None


@dataclass(frozen=True, slots=True)
class PowerConfig:
    """What is done about heat and power of a GPU.

    `control`: off does nothing; observe reads the card, and bounds the sequences in flight when it gets hot; managed also
    sets its clock and power limit, for which it needs the permission, and puts back what it found. The card stays below
    `max_temperature_c`, or its own limits where these are lower. With `finish_by`, a time of day or a moment, the run takes
    as little energy as it can and still ends by then. Read and decided every `period_s`.
    """

    control: str = "observe"
    max_temperature_c: float = 80.0
    finish_by: str | None = None
    period_s: float = 1.0

    def __post_init__(self) -> None:
        _check(self.control in CONTROLS, "control", self.control, f"one of {', '.join(CONTROLS)}")
        _check(40 <= self.max_temperature_c <= 100, "max_temperature_c", self.max_temperature_c, "between 40 and 100")
        _check(0.1 <= self.period_s <= 10, "period_s", self.period_s, "between 0.1 and 10 seconds")
        if self.finish_by is not None:
            _check(_is_moment(self.finish_by), "finish_by", self.finish_by, WANTED)


@dataclass(frozen=True, slots=True)
class Config:
    """One run. `logical_date` names the night of a scheduled run and is part of its identity."""

    input: InputConfig
    data: Path = Path("data")
    checkpoints: Path = Path("checkpoints")
    logical_date: date | None = None
    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    group: GroupConfig = field(default_factory=GroupConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    power: PowerConfig = field(default_factory=PowerConfig)
