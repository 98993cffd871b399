"""FastLane: the rows that most files are full of, straight from their bytes to Draft, some ten times as fast.

It knows two shapes, a chat line of an OpenAI batch file and a plain row with text, and only with fields that leave no
question. Of any other row it says nothing, and validate.py, which is the authority on every row, is asked. The two must
agree: a property test compares them.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from pydantic import ValidationError

from tasks.core.protocols import Tokenizer
from tasks.core.request import SamplingParams
from tasks.ingest.draft import Draft
from tasks.ingest.rows import RowError
from tasks.ingest.shapes.identity import MAX_CHARS
from tasks.ingest.shapes.protocol import ChatParameters, PlainRow
from tasks.ingest.shapes.sampling import sampling_of
from tasks.ingest.shapes.validate import ID_COLUMNS, NOT_PLAIN, Validator

_CHAT = "/v1/chat/completions"
_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What is beyond it the rules look at."""
_NUMBERS: tuple[tuple[str, Any], ...] = (
    *(("max_tokens", _Int), ("max_completion_tokens", _Int), ("min_tokens", _Int), ("temperature", float), ("top_p", float)),
    *(("top_k", _Int), ("min_p", float), ("seed", _Int), ("n", _Int), ("presence_penalty", float)),
    *(("frequency_penalty", float), ("repetition_penalty", float), ("ignore_eos", bool)),
)
_PARAMETERS = (*(name for name, _ in _NUMBERS), "stop")
_PARAMETER_FIELDS = [
    *((name, kind | None, None) for name, kind in _NUMBERS),
    ("stop", str | tuple[str, ...] | None, None),
]
_parameters_of = attrgetter(*_PARAMETERS)
_MAX_KNOWN = 4096


class Turn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A turn of a chat with text and nothing else."""

    role: str
    content: str


_ROLES = frozenset(("system", "user", "assistant"))
_Body = msgspec.defstruct(
    "_Body",
    [("messages", list[Turn]), ("model", str | None, None), *_PARAMETER_FIELDS],
    forbid_unknown_fields=True,
    gc=False,
)
_BatchLine = msgspec.defstruct(
    "_BatchLine",
    [("custom_id", str), ("url", str), ("body", _Body), ("method", str | None, None)],
    forbid_unknown_fields=True,
    gc=False,
)


class FastLane:
    """The lane of one source's rules. `drafts` never raises for what a row holds."""

    def __init__(self, validator: Validator, tokenizer: Tokenizer) -> None:
        self._validator = validator
        self._tokenizer = tokenizer
        self._batch = msgspec.json.Decoder(_BatchLine).decode
        plain = _plain_struct(validator)
        self._plain = msgspec.json.Decoder(plain).decode if plain else None
        self._encode = msgspec.json.Encoder().encode
        self._known: dict[tuple[Any, ...], SamplingParams | None] = {}
        self._models: dict[str | None, bool] = {None: True}
        self._lead = None if validator.config.system is None else Turn("system", validator.config.system)

    def drafts(
        self, lines: Sequence[bytes], first_line: int, offsets: Sequence[int | None], file: str
    ) -> list[Draft | None]:
        """What each line asks; None for one that must be looked at by itself."""
        joined = b"".join(lines)
        if b"\\u0000" in joined or not _is_utf8(joined):
            return [None] * len(lines)
        read, rows = self._decoded(lines)
        return [
            None if row is None else read(row, number, offset, line, file)
            for number, (row, offset, line) in enumerate(zip(rows, offsets, lines, strict=True), first_line)
        ]

    def _decoded(self, lines: Sequence[bytes]) -> tuple[Callable[..., Draft | None], list[Any]]:
        """All lines by the shape of the first one that has a shape, and how such a row is read on."""
        for decode, read in ((self._batch, self._read_batch), (self._plain, self._read_plain)):
            if decode is None:
                continue
            try:
                return read, list(map(decode, lines))
            except (msgspec.MsgspecError, RecursionError):
                rows = [_or_none(decode, line) for line in lines]
                if any(row is not None for row in rows):
                    return read, rows
        return self._read_batch, [None] * len(lines)

    def _read_batch(self, row: Any, number: int, offset: int | None, line: bytes, file: str) -> Draft | None:
        if row.url != _CHAT or row.method not in (None, "POST"):
            return None
        body = row.body
        if not self._serves(body.model):
            return None
        return self._chat(row.custom_id, body.messages, body, body.model, self._lead, number, offset, line, file)

    def _read_plain(self, row: Any, number: int, offset: int | None, line: bytes, file: str) -> Draft | None:
        messages = row.messages
        if messages is None:
            if row.prompt is None:
                return None
            messages = [Turn("user", row.prompt)]
        lead = Turn("system", row.system) if row.system is not None and row.system.strip() else self._lead
        given = next((one for one in row.ids() if one is not None and one != ""), None)
        return self._chat(given, messages, row, None, lead, number, offset, line, file)

    def _chat(
        self,
        given: str | int | None,
        messages: list[Turn],
        body: Any,
        model: str | None,
        lead: Turn | None,
        number: int,
        offset: int | None,
        line: bytes,
        file: str,
    ) -> Draft | None:
        shown = given if given is None else str(given)
        if shown is not None and (len(shown) > MAX_CHARS or not shown.strip()):
            return None
        last = messages[-1] if messages else None
        if last is None or last.role != "user" or not last.content.strip():
            return None
        sampling = self._sampling(body)
        if sampling is None:
            return None
        if lead is not None and messages[0].role != "system":
            messages = [lead, *messages]
        roles = tuple([turn.role for turn in messages])
        if not _ROLES.issuperset(roles):
            return None
        try:
            prompt = self._tokenizer.render_turns(roles, [turn.content for turn in messages])
        except ValueError:
            return None
        name = shown if shown is not None else f"{file}:{number}"
        encoded = self._encode(messages).decode()
        return Draft(number, offset, line, shown, name, encoded, None, last.content, sampling, body.n or 1, model, prompt)

    def _serves(self, model: str | None) -> bool:
        served = self._models.get(model)
        if served is None:
            names = self._validator.served
            served = names is None or (model or "").lower() in names
            if len(self._models) < _MAX_KNOWN:
                self._models[model] = served
        return served

    def _sampling(self, body: Any) -> SamplingParams | None:
        """As validate.py has it, asked once for each set of values; None when it refuses them."""
        key = _parameters_of(body)
        if key in self._known:
            return self._known[key]
        given = dict(zip(_PARAMETERS, key, strict=True))
        if isinstance(given["stop"], tuple):
            given["stop"] = list(given["stop"])
        try:
            sampling = sampling_of(ChatParameters.model_validate(given, strict=True), self._validator.defaults)
        except (ValidationError, RowError):
            sampling = None
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[key] = sampling
        return sampling


def _is_utf8(data: bytes) -> bool:
    """Also of fields that are passed over, which nobody else would look at."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _or_none(decode: Callable[[bytes], Any], line: bytes) -> Any:
    try:
        return decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _plain_struct(validator: Validator) -> type[Any] | None:
    """A plain row under the columns that it has here; None where they need a closer look in every row.

    Fields that would need a closer look may be there as null only.
    """
    config = validator.config
    if config.prompt_template is not None or "." in (config.id_column or ""):
        return None
    ids = (config.id_column,) if config.id_column else ID_COLUMNS
    columns = (config.prompt_column, config.messages_column, *ids)
    known = {*PlainRow.model_fields, *NOT_PLAIN} - {"prompt", "messages"}
    if len(set(columns)) < len(columns) or known.intersection(columns):
        return None
    others = sorted(known - {*_PARAMETERS, "system"})
    named = [("prompt", str | None, None), ("messages", list[Turn] | None, None), ("system", str | None, None)]
    identity = str | _Int | None
    identities: list[Any] = [(f"id_{i}", identity, None) for i in range(len(ids))]
    if config.id_column:  # a row without it is a reject
        identities = [("id_0", identity)]
    closed = [(f"closed_{i}", None, None) for i in range(len(others))]
    rename = {"prompt": config.prompt_column, "messages": config.messages_column}
    rename |= {f"id_{i}": name for i, name in enumerate(ids)} | {f"closed_{i}": name for i, name in enumerate(others)}
    names = [one[0] for one in identities]
    return msgspec.defstruct(
        "_Plain",
        [*named, *identities, *_PARAMETER_FIELDS, *closed],
        rename=rename,
        namespace={"ids": lambda row: (getattr(row, name) for name in names)},
        kw_only=True,
        gc=False,
    )
