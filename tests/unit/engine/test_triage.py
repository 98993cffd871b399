"""Triage on its own: each rule as an example, and all of them against simulated engines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, log2

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.engine.triage import Orders, Phase, Triage


def died(state: Triage, *in_flight: int, new_tokens: bool = False) -> Triage:
    return state.after_death(in_flight, new_tokens=new_tokens, how="killed by SIGSEGV")


def ended(state: Triage, *, new_tokens: bool = True) -> Triage:
    return state.after_end(new_tokens=new_tokens)


def suspecting(*keys: int) -> Triage:
    """Two deaths with these in flight, and everything else answered."""
    return ended(died(died(Triage(3), *keys), *keys))


def test_a_run_without_deaths_is_one_life() -> None:
    """Nothing is held back, and the end is the end."""
    assert Triage(3).orders == Orders()
    assert ended(Triage(3)).phase is Phase.DONE


def test_the_first_death_holds_nothing_back() -> None:
    """Anybody may have killed the engine once."""
    state = died(Triage(3), 1, 2, 3)
    assert (state.phase, state.orders) == (Phase.REST, Orders())


def test_in_flight_at_two_deaths_are_held_back_until_the_rest_is_done() -> None:
    """Suspects are those that were there both times; the others go on."""
    state = died(died(Triage(3), 1, 2, 3, 4), 2, 3, 5)
    assert (state.phase, state.orders) == (Phase.REST, Orders(held=(2, 3)))
    assert ended(state).phase is Phase.TRIAL


def test_two_deaths_with_nothing_in_common_name_nobody() -> None:
    """Then the second one takes the first one's place."""
    state = died(died(Triage(3), 1, 2, new_tokens=True), 3, 4, new_tokens=True)
    assert state.orders.held == ()
    assert died(state, 4, 5).orders.held == (4,)


def test_suspects_run_in_halves() -> None:
    """A half that ends is cleared, and the other one is halved."""
    state = suspecting(1, 2, 3, 4, 5)
    assert (state.running, state.orders.held) == ((1, 2, 3), (4, 5))
    state = ended(state)
    assert (state.running, state.orders.held) == ((4,), (5,))
    state = ended(state)
    assert state.running == (5,)
    assert ended(state).phase is Phase.DONE


def test_a_half_that_dies_holds_the_suspects_and_the_others_wait() -> None:
    """Of a half only what was in flight is suspect."""
    state = died(suspecting(1, 2, 3, 4, 5, 6), 1, 2)
    assert (state.running, state.suspects, state.pool) == ((1,), (1, 2), (3, 4, 5, 6))
    assert state.orders.held == (2, 3, 4, 5, 6)
    state = ended(ended(state))
    assert (state.phase, state.running, state.orders.held) == (Phase.POOL, (3, 4, 5, 6), ())


def test_who_dies_alone_is_condemned_once_another_life_makes_a_token() -> None:
    """The verdict is in no orders before the engine has worked again, and in a life's orders before the end."""
    state = died(suspecting(1, 2), 1)
    assert (state.phase, state.running) == (Phase.POOL, (2,))
    assert state.orders == Orders(held=(1,))
    state = ended(state)
    reason = "the engine died 3 times while this request was running, the last time alone: killed by SIGSEGV"
    assert (state.phase, state.orders) == (Phase.CLOSING, Orders(condemned={1: reason}))
    assert ended(state, new_tokens=False).phase is Phase.DONE


def test_one_of_two_that_dies_last_runs_alone_before_its_verdict() -> None:
    """A life that began with more than one request condemns nobody."""
    state = died(suspecting(1, 2, 3, 4), 2, new_tokens=True)
    assert (state.running, state.pending) == ((2,), {})
    assert list(died(state, 2).pending) == [2]


def test_without_other_work_a_probe_shows_that_the_engine_works() -> None:
    """A request that was answered before is asked for a token; only then does the verdict count."""
    state = died(ended(suspecting(1, 2)), 2)
    assert (state.phase, state.orders) == (Phase.PROBE, Orders(held=(2,), probe=True))
    assert ended(state).phase is Phase.CLOSING
    assert ended(state, new_tokens=False).phase is Phase.BROKEN


def test_an_engine_that_dies_before_anything_is_in_flight_is_broken() -> None:
    """After max_restarts + 1 deaths, with nobody accused."""
    state = Triage(2)
    for _ in range(2):
        state = died(state)
        assert state.phase is Phase.REST
    state = died(state)
    assert (state.phase, state.deaths, state.seen) == (Phase.BROKEN, 3, {})


def test_new_tokens_renew_patience() -> None:
    """Deaths with new tokens in between do not add up."""
    state = Triage(1)
    for key in range(20):
        state = died(state, key, new_tokens=True)
    assert (state.phase, state.deaths) == (Phase.REST, 1)


def test_a_driver_that_breaks_with_only_suspects_left_condemns_nobody() -> None:
    """The verdicts that it brings about are dropped with the run, after a bounded number of deaths."""
    state, deaths = suspecting(*range(64)), 2
    while state.phase is not Phase.BROKEN:
        state, deaths = died(state, *state.running), deaths + 1
    assert state.condemned == {}
    assert deaths == 2 + ceil(log2(64)) + 2 * state.max_restarts + 2


def test_many_that_kill_at_once_are_told_from_a_broken_engine_by_a_probe() -> None:
    """All of a batch are condemned, because what was answered before still gets its token."""
    state, probes = suspecting(*range(8)), 0
    while state.phase not in (Phase.DONE, Phase.BROKEN):
        probes += state.phase is Phase.PROBE
        state = died(state, *state.running) if state.running else ended(state, new_tokens=state.orders.probe)
    assert (state.phase, set(state.condemned)) == (Phase.DONE, set(range(8)))
    assert probes == 2


def test_orders_survive_json() -> None:
    """Keys are whole 64-bit numbers, also where JSON makes them strings."""
    orders = Orders((2**64 - 1, 3), {2**63: "reason"}, True)
    assert Orders.from_dict(orders.to_dict()) == orders


@dataclass
class Night:
    """An engine that makes a token a step for each of `width` rows; a poison row kills it with its own n-th token.

    `strikes` are deaths for other reasons: the number of steps that engine has made in all lives when it comes.
    """

    lengths: list[int]
    poisons: Mapping[int, int]
    strikes: list[int]
    width: int
    breaks_at: int = 10**9
    tokens: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    lone_strikes: set[int] = field(default_factory=set)
    steps: int = 0
    deaths: int = 0
    deaths_when_broken: int = 0

    def is_final(self, key: int) -> bool:
        return key in self.failed or self.tokens.get(key, 0) >= self.lengths[key]

    def answered(self) -> list[int]:
        return [key for key in range(len(self.lengths)) if self.is_final(key) and key not in self.failed]

    def live(self, state: Triage) -> Triage:
        """One life of the engine under these orders."""
        orders = state.orders
        self.failed |= set(orders.condemned)
        waiting = [key for key in range(len(self.lengths)) if not self.is_final(key) and key not in orders.held]
        if orders.probe:
            return self._probe(state)
        allowed, in_flight, has_made = len(waiting), list[int](), False
        while True:
            while waiting and len(in_flight) < self.width:
                in_flight.append(waiting.pop(0))
            if not in_flight:
                return state.after_end(new_tokens=has_made)
            is_struck = self._is_struck()
            if is_struck or any(self.poisons.get(key) == self.tokens.get(key, 0) for key in in_flight):
                self.lone_strikes |= set(in_flight) if self.steps in self.strikes and allowed == 1 else set()
                return self._die(state, in_flight, has_made)
            for key in in_flight:
                self.tokens[key] = self.tokens.get(key, 0) + 1
            in_flight, has_made = [key for key in in_flight if not self.is_final(key)], True

    def _probe(self, state: Triage) -> Triage:
        return self._die(state, [], False) if self._is_struck() else state.after_end(new_tokens=bool(self.answered()))

    def _is_struck(self) -> bool:
        self.steps += 1
        return self.steps in self.strikes or self.steps >= self.breaks_at

    def _die(self, state: Triage, in_flight: list[int], has_made: bool) -> Triage:
        self.deaths += 1
        self.deaths_when_broken += self.steps >= self.breaks_at
        return state.after_death(in_flight, new_tokens=has_made, how="dead")


@st.composite
def nights(draw: st.DrawFn) -> Night:
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=64))
    rows = st.integers(0, len(lengths) - 1)
    poisons = {key: draw(st.integers(0, lengths[key] - 1)) for key in draw(st.sets(rows, max_size=3))}
    strikes = draw(st.lists(st.integers(1, 40), max_size=3, unique=True))
    return Night(lengths, poisons, strikes, draw(st.sampled_from([1, 2, 3, 8, 64])))


def go_through(night: Night) -> Triage:
    """To the end, which comes."""
    state = Triage(3)
    for _ in range(1000):
        if state.phase in (Phase.DONE, Phase.BROKEN):
            return state
        state = night.live(state)
    raise AssertionError(state)


@given(nights())
@settings(max_examples=1000, deadline=None)
def test_every_night_ends_with_the_poison_condemned_and_the_rest_answered(night: Night) -> None:
    """Whatever rows kill, and whoever else does: few deaths, nothing innocent condemned, nothing left."""
    state = go_through(night)
    num_rows, num_causes = len(night.lengths), len(night.poisons) + len(night.strikes)
    assert night.deaths <= num_causes * (ceil(log2(max(2, night.width))) + 3)
    assert night.failed <= night.poisons.keys() | night.lone_strikes
    if state.phase is Phase.BROKEN:
        assert night.strikes or len(night.poisons) == num_rows
    else:
        assert night.failed >= night.poisons.keys()
        assert len(night.answered()) + len(night.failed) == num_rows


@given(nights(), st.integers(1, 60))
@settings(max_examples=1000, deadline=None)
def test_an_engine_that_breaks_at_any_time_condemns_nobody_else(night: Night, breaks_at: int) -> None:
    """Once every request and every probe kills, the run ends after few deaths more, and only earlier verdicts count."""
    night.breaks_at = breaks_at
    state = go_through(night)
    assert night.failed <= night.poisons.keys() | night.lone_strikes
    assert night.deaths_when_broken <= ceil(log2(max(2, night.width))) + 4 * state.max_restarts + 4
    if state.phase is Phase.DONE:
        assert night.steps < breaks_at
