"""FieldOrder: in which order the fields of a row go, decided by its own cells alone.

A tree of tests "this field has this value", each of which puts its field and those that come with it behind the ones before;
where no test holds, the other fields follow in one order that is the same for all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

Cell = tuple[str, str]
"""A field's name, and its value as the prompt has it."""

ABSENT = 0
"""The hash of a cell that is not there."""


def value_hash(text: str) -> int:
    """64 bits that are the same in every process. Two values with one hash cost an order, never a text."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Rule:
    """Whether a field has a value; `shared` are the fields that rows which pass have in common."""

    parent: int
    field: int
    value: int
    shared: tuple[int, ...]


@dataclass(frozen=True)
class FieldOrder:
    """`names` are the fields that are put in order, `rest` their places in the order that holds where no test does, and
    `rules` number the nodes from 1 on, node 0 being the one where every row begins, with what all have in common."""

    names: tuple[str, ...]
    rest: tuple[int, ...]
    shared: tuple[int, ...]
    rules: tuple[Rule, ...]

    @cached_property
    def digest(self) -> str:
        """What a text depends on that was made by it."""
        return blake2b(repr((self.names, self.rest, self.shared, self.rules)).encode(), digest_size=16).hexdigest()

    def arrange(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells in their order. Those of other fields follow as they are given."""
        at = {name: i for i, (name, _) in enumerate(cells)}
        places = [at.get(name) for name in self.names]
        hashes = [ABSENT if place is None else value_hash(cells[place][1]) for place in places]
        ordered = [place for field in self.fields(hashes) if (place := places[field]) is not None]
        known = set(ordered)
        return [cells[place] for place in ordered] + [cell for i, cell in enumerate(cells) if i not in known]

    def fields(self, hashes: Sequence[int]) -> list[int]:
        """The fields' places among `names` in the order of a row whose cells have these hashes."""
        ordered = dict.fromkeys(self.shared)
        node = 0
        while rules := self._rules_at.get(node):
            passed = [rules[key] for key in enumerate(hashes) if key in rules and key[0] not in ordered]
            if not passed:
                break
            node = min(passed)
            ordered |= dict.fromkeys((self.rules[node - 1].field, *self.rules[node - 1].shared))
        return list(ordered | dict.fromkeys(self.rest))

    @cached_property
    def _rules_at(self) -> dict[int, dict[tuple[int, int], int]]:
        """Of each node the field and value that lead on, and where to; of two nodes the earlier one."""
        found: dict[int, dict[tuple[int, int], int]] = {}
        for node, rule in enumerate(self.rules, 1):
            found.setdefault(rule.parent, {}).setdefault((rule.field, rule.value), node)
        return found
