"""A row's fields to its prompt, by a Jinja2 template of the user's. Pure; the same row always gives the same text.

The template sees each field under its name, the whole row as `row` (`row["Best Answer"]`), what encloses the record as `up`,
and some or all fields in an order, a line each, as `fields`. A field that is not there fails, one that is null or empty is
empty text, and any other value reads as it stands in a file of JSON. Text is neither escaped nor trimmed.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, UndefinedError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tasks.core.errors import ConfigError
from tasks.ingest.rows import RowError
from tasks.ingest.shapes.fields import Fields, as_text

ROW, UP, FIELDS = "row", "up", "fields"
_MAX_CHARS = 16 << 20
_MAX_TURNS = 1_000_000
_MAX_EXPONENT = 1_000


class TooMuch(Exception):  # noqa: N818  it is a limit that was reached
    """The template asks for more than any prompt needs."""


class _Missing(StrictUndefined):
    """Says in the user's words what is not there."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        name, inside = self._undefined_name, self._undefined_obj
        if self._undefined_hint:
            return self._undefined_hint
        if isinstance(inside, Mapping):
            return f"no field {name!r} among {_named(inside)}"
        if isinstance(inside, list | tuple):
            return f"no element {name!r} in a list of {len(inside)}"
        if isinstance(inside, str):
            return f"no field {name!r} in text"
        return f"no field {name!r}"


class _Environment(ImmutableSandboxedEnvironment):
    """Fields go before the methods of their object (`order.items` is a field), and null is empty text wherever it lies."""

    intercepted_binops = frozenset(("*", "**"))

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return _filled(obj[attribute])
        return _filled(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return _filled(super().getitem(obj, argument))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (abs(left) <= 1 or abs(right) <= _MAX_EXPONENT):
            raise TooMuch(f"an exponent beyond {_MAX_EXPONENT:,}")
        if operator == "*":
            for repeated, times in ((left, right), (right, left)):
                if (
                    isinstance(repeated, str | list | tuple)
                    and isinstance(times, int)
                    and len(repeated) * times > _MAX_CHARS
                ):
                    raise TooMuch(f"something repeated {times:,} times")
        return super().call_binop(context, operator, left, right)


def _filled(value: Any) -> Any:
    return "" if value is None else value


def _shown(value: Any) -> Any:
    """What an expression prints."""
    return str(value) if isinstance(value, Fields) else as_text(value)


def _environment() -> _Environment:
    environment = _Environment(undefined=_Missing, finalize=_shown, keep_trailing_newline=True, autoescape=False)
    del environment.filters["random"]
    environment.globals = {"range": range, "dict": dict, "namespace": environment.globals["namespace"]}
    return environment


class PromptTemplate:
    """A compiled template. `uses` are the row's fields that it names, None when it looks at all of them; `has_place` tells
    that it may put `fields` somewhere."""

    def __init__(self, text: str) -> None:
        environment = _environment()
        tree = environment.parse(text)
        if any(True for _ in meta.find_referenced_templates(tree)):
            raise TemplateSyntaxError("there is no other template to include, import or extend", 1)
        self._template: Template = environment.from_string(text)
        self.uses = _fields(tree)
        self.has_place = FIELDS in meta.find_undeclared_variables(tree)

    def render(self, content: Mapping[str, Any], up: Mapping[str, Any] | None, fields: Fields | None = None) -> str:
        """The row's prompt. Raises RowError when it cannot be made."""
        variables = {name: _filled(value) for name, value in content.items()}
        variables.setdefault("range", _Ranges().range)
        variables |= {ROW: content} if up is None else {ROW: content, UP: up}
        if fields is not None:
            variables[FIELDS] = fields
        parts: list[str] = []
        num_chars = 0
        try:
            for part in self._template.generate(variables):
                parts.append(part)
                num_chars += len(part)
                if num_chars > _MAX_CHARS:
                    raise TooMuch(f"a prompt of more than {_MAX_CHARS:,} characters")
        except UndefinedError as error:
            around = "" if up is None else f", and up has {_named(up)}"
            raise RowError("no_field", f"prompt template: {error}; the row has {_named(content)}{around}") from error
        except TooMuch as error:
            raise RowError("template_error", f"prompt template: it asks for {error}") from error
        except Exception as error:  # of whatever type: the template is a program of the user's
            raise RowError("template_error", f"prompt template: {type(error).__name__}: {error}") from error
        return "".join(parts)


class _Ranges:
    """The turns that the loops of one prompt may take in all; those over a row's own lists are not counted."""

    def __init__(self) -> None:
        self._num_turns = 0

    def range(self, *bounds: int) -> range:
        turns = range(*bounds)
        self._num_turns += len(turns)
        if self._num_turns > _MAX_TURNS:
            raise TooMuch(f"more than {_MAX_TURNS:,} turns of its loops")
        return turns


def _fields(tree: nodes.Template) -> frozenset[str] | None:
    """The fields that a template reads by name, or None where it hands the whole row on."""
    names = meta.find_undeclared_variables(tree)
    if ROW in names:
        lookups = list(tree.find_all((nodes.Getattr, nodes.Getitem)))
        keys = [_key(one) for one in lookups if _is_row(getattr(one, "node", None))]
        if None in keys or len(keys) < sum(_is_row(name) for name in tree.find_all(nodes.Name)):
            return None
        names |= {key for key in keys if key is not None}
    return frozenset(names - {ROW})


def _is_row(node: object) -> bool:
    return isinstance(node, nodes.Name) and node.name == ROW


def _key(lookup: nodes.Expr) -> str | None:
    if isinstance(lookup, nodes.Getattr):
        return lookup.attr
    key = lookup.arg if isinstance(lookup, nodes.Getitem) else None
    return key.value if isinstance(key, nodes.Const) and isinstance(key.value, str) else None


def _named(fields: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, fields)) or "no fields"


@lru_cache(maxsize=64)
def compiled(text: str) -> PromptTemplate:
    """The template of this text. Raises ConfigError with the line where it is wrong."""
    try:
        return PromptTemplate(text)
    except TemplateSyntaxError as error:
        raise ConfigError(f"prompt_template: line {error.lineno}: {error.message}") from error
    except (RecursionError, SyntaxError, ValueError) as error:
        raise ConfigError(f"prompt_template: {error}") from error


def prompted(
    text: str,
    content: Mapping[str, Any],
    up: Mapping[str, Any] | None,
    prompt_column: str,
    fields: Fields | None = None,
) -> dict[str, Any]:
    """What a row's fields say besides: the rendered prompt, and those that the template does not use.

    A field that it uses is data, whatever its name; one that is called `temperature` and not used is that parameter.
    """
    template = compiled(text)
    kept = {}
    if template.uses is not None:
        used = template.uses.union(*((name, name.partition(".")[0]) for name, _ in fields or ()))
        kept = {name: value for name, value in content.items() if name not in used}
    return kept | {prompt_column: template.render(content, up, fields)}
