"""The governor: each period it reads the card, decides, says how many sequences may run, and sets the card.

How many may run is said first: it needs nobody's permission and never blocks. `publish` hears every setting, `tell` every
row for the record. No call to the card is waited for longer than its share of the period.
"""

import logging
from collections.abc import Callable

from tasks.core.config import PowerConfig
from tasks.core.errors import NightbatchError
from tasks.governor import policy
from tasks.governor.device import CardLostError, Device
from tasks.governor.hands import Hands
from tasks.governor.owned import LeaseLostError
from tasks.governor.sample import Sample
from tasks.governor.setting import Load, Setting
from tasks.governor.state import State, Unable

_log = logging.getLogger(__name__)

_SHARE = 0.4
"""Of a period, for each of the two calls that a period makes."""

Publish = Callable[[Setting], None]
Tell = Callable[[Sample | None, Setting, str], None]


class Governor:
    """Governs one card. `device` is to be closed by whoever opened it, and put back by then."""

    def __init__(self, device: Device, hands: Hands, config: PowerConfig, publish: Publish, tell: Tell) -> None:
        self._device, self._hands, self._config = device, hands, config
        self._publish, self._tell = publish, tell
        self._patience_s = _SHARE * config.period_s
        self._state: State | None = None
        self._found_w: float | None = None
        self._set: tuple[int | None, float | None] = (None, None)
        self._complaint = ""
        self.state_name = "Starting"

    def tick(self, load: Load, now_s: float) -> Setting:
        """One period; what may run from now on."""
        answer = self._hands.do(self._device.read, self._patience_s)
        if answer and isinstance(answer.error, LeaseLostError):  # the guard has put the card back: begin anew
            _log.warning("%s", answer.error)
            self._set, self._state, self._found_w = (None, None), None, None
            answer = self._hands.do(self._device.read, self._patience_s)
        sample = answer.value if answer else None
        if answer and isinstance(answer.error, CardLostError):
            self._state, setting = self._lost(str(answer.error))
        else:
            self._state, setting = policy.decide(self._begun(sample), sample, load, now_s)
        self._publish(setting)
        self._act(setting, sample)
        self.state_name = type(self._state).__name__
        self._tell(sample, setting, self.state_name)
        return setting

    def _begun(self, sample: Sample | None) -> State:
        """The state; the first one is made of the first reading that there is."""
        if self._state is None:
            if sample is None:
                return Unable("the card has not been read yet")
            self._found_w = sample.requested_w
            return policy.begin(self._device.card, self._config, sample)
        if isinstance(self._state, Unable) and self._found_w is None and sample is not None:
            self._found_w = sample.requested_w
            return policy.begin(self._device.card, self._config, sample)
        return self._state

    def _lost(self, words: str) -> tuple[State, Setting]:
        return policy.lost(self._state or Unable(words), words)

    def _act(self, setting: Setting, sample: Sample | None) -> None:
        """Set what has changed. A card that does not answer is not waited for: the sequences are bounded already."""
        wanted = (setting.clock_mhz, setting.power_w)
        if wanted == self._set or self._state is None:
            return
        answer = self._hands.do(lambda: self._change(*wanted), self._patience_s)
        if answer is None:
            return
        if answer.error is None:
            self._set, self._state, self._complaint = wanted, policy.obeyed(self._state), ""
        elif isinstance(answer.error, CardLostError):
            self._state, setting = self._lost(str(answer.error))
            self._publish(setting)
        elif isinstance(answer.error, LeaseLostError) and sample is not None:
            _log.warning("%s", answer.error)
            self._set, self._state = (None, None), policy.begin(self._device.card, self._config, sample)
        else:
            self._refused(answer.error)

    def _refused(self, error: NightbatchError) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            _log.warning("%s", error)
        if self._state is not None:
            self._state = policy.refused(self._state, str(error))

    def _change(self, clock_mhz: int | None, power_w: float | None) -> None:
        """In the thread of the calls: down before up does not matter, as each only lowers what the other allows."""
        clock_before, power_before = self._set
        if power_w != power_before and (power_w is not None or self._found_w is not None):
            self._device.set_power_limit(self._found_w if power_w is None else power_w)  # type: ignore[arg-type]
        if clock_mhz != clock_before:
            if clock_mhz is None:
                self._device.unlock_clock()
            else:
                self._device.lock_clock(clock_mhz)
