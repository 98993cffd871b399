"""What may sit between readings and settings in the simulated machine room: nothing, a threshold, the governor."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tasks.core.config import PowerConfig
from tasks.governor import policy
from tasks.governor.sample import Card, Sample
from tasks.governor.setting import Load, Setting
from tasks.governor.state import State

_AS_FOUND = Setting()


class Controller(Protocol):
    """One for many cards: a reading (None where there was none) and a load of each in, a setting of each out."""

    @property
    def reads(self) -> bool:
        """Whether it looks at the cards at all."""
        ...

    def decide(self, samples: Sequence[Sample | None], loads: Sequence[Load], now_s: float) -> list[Setting]: ...

    def told(self, index: int, refusal: str | None) -> None:
        """How writing a setting went: None is that it worked."""
        ...

    def lost(self, index: int, words: str) -> Setting:
        """A card is gone for good."""
        ...


@dataclass
class Nothing:
    """The hardware looks after itself."""

    reads: bool = False

    def decide(self, samples: Sequence[Sample | None], loads: Sequence[Load], now_s: float) -> list[Setting]:
        return [_AS_FOUND] * len(loads)

    def told(self, index: int, refusal: str | None) -> None:
        pass

    def lost(self, index: int, words: str) -> Setting:
        return _AS_FOUND


@dataclass
class Threshold:
    """The usual: at `trip_c` the power limit goes to a share of the default one, at `release_c` it comes back; looked at
    every `period_s`."""

    cards: Sequence[Card]
    trip_c: float
    release_c: float
    share: float
    period_s: float
    reads: bool = True
    low: list[bool] = field(default_factory=list)

    def decide(self, samples: Sequence[Sample | None], loads: Sequence[Load], now_s: float) -> list[Setting]:
        self.low = self.low or [False] * len(self.cards)
        if round(now_s) % round(self.period_s) == 0:
            for at, sample in enumerate(samples):
                if sample is not None and sample.temperature_c is not None:
                    self.low[at] = sample.temperature_c >= (self.release_c + 0.5 if self.low[at] else self.trip_c)
        return [self._setting(card, low) for card, low in zip(self.cards, self.low, strict=True)]

    def told(self, index: int, refusal: str | None) -> None:
        pass

    def lost(self, index: int, words: str) -> Setting:
        return _AS_FOUND

    def _setting(self, card: Card, low: bool) -> Setting:
        default = card.default_w or 0.0
        return Setting(power_w=max(self.share * default, card.min_w or 0.0) if low else default)


@dataclass
class Governor:
    """Ours, one state for each card. `ahead` is whether it is told what is planned."""

    cards: Sequence[Card]
    config: PowerConfig
    reads: bool = True
    states: list[State] = field(default_factory=list)

    def decide(self, samples: Sequence[Sample | None], loads: Sequence[Load], now_s: float) -> list[Setting]:
        if not self.states:
            both = zip(self.cards, samples, strict=True)
            self.states = [policy.begin(card, self.config, sample) for card, sample in both]
        settings = []
        for at, (sample, load) in enumerate(zip(samples, loads, strict=True)):
            self.states[at], setting = policy.decide(self.states[at], sample, load, now_s)
            settings.append(setting)
        return settings

    def told(self, index: int, refusal: str | None) -> None:
        state = self.states[index]
        self.states[index] = policy.obeyed(state) if refusal is None else policy.refused(state, refusal)

    def lost(self, index: int, words: str) -> Setting:
        self.states[index], setting = policy.lost(self.states[index], words)
        return setting
