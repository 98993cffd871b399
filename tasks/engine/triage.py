"""Triage: which requests may run in the engine's next life, so that one that kills it is found and the rest is answered.

Pure: how each life of the engine ended goes in, what the next one is to do comes out. After the first death all goes on
as it was: anybody may have killed it. Requests in flight at two deaths in a row are suspects, held back until everything
else is done. Then they run in halves: a half that ends is cleared, a half that dies holds the new suspects, and whatever
was not in flight waits in the pool. A request that dies as the only one of a life is condemned, and the pool runs; if that
dies too, its requests in flight are the next suspects. A verdict counts once the engine has made a token in a later life:
where no request is left for that, one that was answered before is run again for one token (the probe).

With k requests that always kill, m >= 2 in flight at most and u deaths for other reasons, there are at most
(k + u) * (ceil(log2(m)) + 3) deaths. A request that kills nothing is condemned only when one of the u strikes the life in
which it runs alone, after at least two others had it in flight.

A broken engine kills with every request. More than `max_restarts` deaths without a new token that neither name nor narrow
suspects, and then a probe that shows no life, end the run; verdicts that do not count by then are dropped. From the moment
it breaks that takes max_restarts + 1 deaths if nothing gets in flight any more, 2 * max_restarts + 2 while other requests
are left than suspects, and never more than ceil(log2(m)) + 4 * max_restarts + 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self


class Phase(StrEnum):
    """What a life of the engine is for."""

    REST = "rest"
    """Everything but the suspects. Ends when all that is answered."""
    TRIAL = "trial"
    """A half of the suspects and nothing else; one of them while verdicts wait for a token."""
    POOL = "pool"
    """Everything that was held back with those suspects and is none itself."""
    PROBE = "probe"
    """A request that was answered before, for one token: does the engine work at all?"""
    CLOSING = "closing"
    """Nothing but to write verdicts down."""
    DONE = "done"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Orders:
    """What a life of the engine must not run, which requests it writes down as failed, and whether it is a probe."""

    held: tuple[int, ...] = ()
    condemned: Mapping[int, str] = field(default_factory=dict)
    probe: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: keys of objects are strings."""
        condemned = {str(key): reason for key, reason in self.condemned.items()}
        return {"held": list(self.held), "condemned": condemned, "probe": self.probe}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        condemned = {int(key): reason for key, reason in values.get("condemned", {}).items()}
        return cls(tuple(values.get("held", ())), condemned, values.get("probe", False))


@dataclass(frozen=True, slots=True)
class Triage:
    """All that is known between two lives of the engine; keys of sequences in the order in which they were admitted."""

    max_restarts: int
    rest_done: bool = False
    last: frozenset[int] = frozenset()
    """In flight at the last death while everything ran, if that named nobody."""
    suspects: tuple[int, ...] = ()
    pool: tuple[int, ...] = ()
    pending: Mapping[int, str] = field(default_factory=dict)
    """Verdicts since which the engine has made no token."""
    condemned: Mapping[int, str] = field(default_factory=dict)
    written: frozenset[int] = frozenset()
    seen: Mapping[int, int] = field(default_factory=dict)
    """At how many deaths each was in flight."""
    deaths: int = 0
    """In a row, without a new token."""
    fruitless: int = 0
    """Those of them that have told nothing."""
    is_broken: bool = False

    @property
    def phase(self) -> Phase:
        """What the next life is for."""
        if self.is_broken:
            return Phase.BROKEN
        if self.fruitless > self.max_restarts:
            return Phase.PROBE
        if not self.rest_done:
            return Phase.REST
        if self.suspects:
            return Phase.TRIAL
        if self.pool:
            return Phase.POOL
        if self.pending:
            return Phase.PROBE
        return Phase.DONE if self.written.issuperset(self.condemned) else Phase.CLOSING

    @property
    def running(self) -> tuple[int, ...]:
        """All that may run in the next life when it is a trial or for the pool; nobody lists the rest."""
        match self.phase:
            case Phase.TRIAL:
                return self.suspects[: 1 if self.pending else (len(self.suspects) + 1) // 2]
            case Phase.POOL:
                return self.pool
        return ()

    @property
    def orders(self) -> Orders:
        """For the next life."""
        held = _without((*self.suspects, *self.pool, *self.pending), self.running)
        return Orders(held, self.condemned, self.phase is Phase.PROBE)

    def after_end(self, *, new_tokens: bool) -> "Triage":
        """The life has done all that it was allowed to."""
        state = replace(self._heard(new_tokens), written=frozenset(self.condemned))
        match self.phase:
            case Phase.REST:
                return replace(state, rest_done=True, last=frozenset(), fruitless=0)
            case Phase.TRIAL:
                return replace(state, suspects=_without(self.suspects, self.running))
            case Phase.POOL:
                return replace(state, pool=())
            case Phase.PROBE:
                return replace(state, is_broken=not new_tokens)
        return state

    def after_death(self, in_flight: Sequence[int], *, new_tokens: bool, how: str) -> "Triage":
        """The life has ended with these in flight; `how` is for people."""
        seen = dict(self.seen) | {key: self.seen.get(key, 0) + 1 for key in in_flight}
        state = self._heard(new_tokens)
        state = replace(state, deaths=state.deaths + 1, seen=seen)
        has_told = False
        if in_flight and self.phase is Phase.REST:
            state = state._name(tuple(in_flight))
            has_told = len(state.suspects) > len(self.suspects)
        elif in_flight and self.running:
            state = state._narrow(tuple(in_flight), self.running, how)
            has_told = self.phase is Phase.TRIAL
        state = replace(state, fruitless=state.fruitless + (not has_told))
        can_probe = in_flight and (state.suspects or state.pool or state.pending)
        return replace(state, is_broken=state.fruitless > self.max_restarts and not can_probe)

    def _heard(self, new_tokens: bool) -> "Triage":
        """A new token shows that the engine works: verdicts count, and deaths are counted anew."""
        if not new_tokens:
            return self
        return replace(self, condemned={**self.condemned, **self.pending}, pending={}, deaths=0, fruitless=0)

    def _name(self, in_flight: tuple[int, ...]) -> "Triage":
        named = tuple(key for key in in_flight if key in self.last)
        return replace(self, suspects=self.suspects + named, last=frozenset(() if named else in_flight))

    def _narrow(self, in_flight: tuple[int, ...], running: tuple[int, ...], how: str) -> "Triage":
        held = (*self.suspects, *self.pool)
        if len(running) > 1:
            return replace(self, suspects=in_flight, pool=_without(held, in_flight))
        (key,) = running
        reason = f"the engine died {self.seen[key]} times while this request was running, the last time alone: {how}"
        return replace(self, suspects=(), pool=_without(held, running), pending={**self.pending, key: reason})


def _without(keys: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    gone = frozenset(others)
    return tuple(key for key in keys if key not in gone)
