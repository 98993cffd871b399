"""Frame: what a chat template puts around the turns of a chat, found once for each sequence of roles.

Running a template costs some 20 us a chat, filling a frame 1 us. The template is run once with holes in place
of the texts. A hole raises when the template looks at it in any way but to put it down, whole or stripped; templates with
constructs that would do so unnoticed are told by their syntax tree. Neither kind has frames: each chat is rendered.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_HOLE = re.compile("\ue000(\\d+)([slr]?)\ue001")
_STRIP: Mapping[str, Callable[[str], str]] = {"": str, "s": str.strip, "l": str.lstrip, "r": str.rstrip}
_FILTERS = frozenset(("trim",))
_TESTS = frozenset(("defined", "undefined", "none", "string"))
_METHODS = frozenset(("strip", "lstrip", "rstrip"))
_FUNCTIONS = frozenset(("raise_exception", "namespace", "range"))


class ObservedError(Exception):
    """The template's outcome depends on what a turn says."""


def _observed(*_: Any, **__: Any) -> Any:
    raise ObservedError


class _Put(str):
    """Text with holes in it, which can be put down and joined to other text, and nothing else."""

    __slots__ = ()

    def __add__(self, other: str) -> "_Put":
        return _Put(str.__add__(self, other))

    def __radd__(self, other: str) -> "_Put":
        return _Put(str.__add__(other, self))


class _Hole(_Put):
    """A turn's text that is not known yet."""

    __slots__ = ()

    def strip(self, chars: str | None = None) -> str:
        return self._stripped("s", chars)

    def lstrip(self, chars: str | None = None) -> str:
        return self._stripped("l", chars)

    def rstrip(self, chars: str | None = None) -> str:
        return self._stripped("r", chars)

    def _stripped(self, how: str, chars: str | None) -> str:
        if chars is not None:
            raise ObservedError
        return _Put(str.replace(str(self), "\ue001", f"{how}\ue001"))


_KEPT = {"__add__", "__radd__", "__class__", "__new__", "__init__", "__str__", "__getattribute__", "__getnewargs__"}
_KEPT |= {"__doc__", "__init_subclass__", "__subclasshook__", "__setattr__", "__delattr__", "__dir__", "__sizeof__"}
_KEPT |= {"__reduce__", "__reduce_ex__", "__getstate__"}
for _name in set(dir(str)) - _KEPT:
    setattr(_Put, _name, _observed)


class Frame:
    """The text of a chat with these roles, but for what the turns say."""

    def __init__(self, rendered: str) -> None:
        pieces = _HOLE.split(rendered)
        self._first = pieces[0]
        self._rest = [
            (int(index), _STRIP[how], text)
            for index, how, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True)
        ]

    def filled(self, contents: Sequence[str]) -> str:
        """The chat as the model reads it."""
        pieces = [self._first]
        for index, strip, text in self._rest:
            pieces += (strip(contents[index]), text)
        return "".join(pieces)


def holes(number: int) -> list[str]:
    """Stand-ins for the texts of so many turns."""
    return [_Hole(f"\ue000{index}\ue001") for index in range(number)]


def may_have_frames(template: str) -> bool:
    """Whether a template has only constructs in which a hole is either put down or noticed."""
    from jinja2 import Environment, TemplateError, nodes

    if "\ue000" in template:
        return False
    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template)
    except TemplateError:
        return False
    closed = (nodes.Concat, nodes.Mod, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock, nodes.Mul)
    return not any(tree.find_all(closed)) and all(
        _is_open(node) for node in tree.find_all((nodes.Filter, nodes.Test, nodes.Call, nodes.Compare))
    )


def _is_open(node: Any) -> bool:
    from jinja2 import nodes

    match node:
        case nodes.Filter():
            return node.name in _FILTERS and not node.args
        case nodes.Test():
            return node.name in _TESTS
        case nodes.Call(node=nodes.Getattr(attr=name)):
            return name in _METHODS
        case nodes.Call(node=nodes.Name(name=name)):
            return name in _FUNCTIONS
        case nodes.Compare():
            looks_into = any(operand.op in ("in", "notin") for operand in node.ops)
            return not looks_into or isinstance(node.expr, nodes.Const)
    return False
