"""The governor's own process: `python -m tasks.governor.process SPEC`. Composition root of that process.

The engine's reports come in on stdin, a JSON object a line; its end is the end of the work. News go out on stdout in the
same way: the state of the card, once a period. Exit code 0 when the card has again what it was found with.
"""

import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.core.config import PowerConfig
from tasks.core.errors import DamageError, LockedError, NightbatchError
from tasks.governor.device import CardError, Device
from tasks.governor.governor import Governor
from tasks.governor.hands import Hands
from tasks.governor.helper import FACTORY, open_card
from tasks.governor.lease import state_dir
from tasks.governor.load import Engine
from tasks.governor.owned import OwnedDevice
from tasks.governor.record import Recorder, session_name, take_in_telemetry
from tasks.governor.restore import Outcome, restore_all
from tasks.governor.sample import Card, Sample
from tasks.governor.setting import Setting
from tasks.governor.visible import visible
from tasks.storage.atomic import read_json, write_json
from tasks.storage.layout import Run
from tasks.storage.limit import UNBOUNDED, write_limit

if TYPE_CHECKING:
    from tasks.governor.nvml import Found

_OPENS_S = 30.0
"""With persistence off the driver's first call takes seconds."""
_CLOSES_S = 5.0
_HOLDS_PERIODS = 2.0


@dataclass(frozen=True, slots=True)
class GovernorSpec:
    """What the process must know, as a JSON file. Paths are absolute; `shares` is the plan's share of prefill, and
    `finish_at` when all must be done, in seconds since 1970."""

    run_id: str
    home: str
    journals: str
    num_sequences: int
    config: PowerConfig = field(default_factory=PowerConfig)
    shares: tuple[float, ...] = ()
    finish_at: float | None = None
    engine_index: int = 0

    @property
    def run(self) -> Run:
        return Run(self.run_id, Path(self.home), Path(self.journals))

    def write(self) -> Path:
        path = self.run.governor_spec(self.engine_index)
        write_json(path, asdict(self))
        return path

    @staticmethod
    def read(path: Path) -> "GovernorSpec":
        values: dict[str, Any] = read_json(path) or {}
        return GovernorSpec(**{**values, "config": PowerConfig(**values["config"]), "shares": tuple(values["shares"])})


class Reports:
    """The engine's reports as they come, on a descriptor; `has_ended` when no more will."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pending = b""
        self.has_ended = False
        os.set_blocking(fd, False)

    def until(self, deadline_s: float) -> Iterator[dict[str, Any]]:
        """Those that come before a moment of the monotonic clock, or before the end."""
        while not self.has_ended and (left := deadline_s - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], left)[0]:
                return
            data = os.read(self._fd, 1 << 16)
            self.has_ended = not data
            *lines, self._pending = (self._pending + data).split(b"\n")
            yield from map(json.loads, lines)


def main(arguments: list[str]) -> int:
    spec = GovernorSpec.read(Path(arguments[0]))
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the parent ends, and then stdin does
        signal.signal(number, lambda number, frame: stopping.append(number) if number == signal.SIGTERM else None)
    reports = Reports(sys.stdin.fileno())
    with suppress(OSError):
        for note in take_in_telemetry(spec.run).notes:
            _tell({"note": note})
    recorder = Recorder(spec.run, spec.engine_index, session_name(datetime.now(UTC), spec.engine_index, os.getpid()))
    hands = Hands()
    device, words = _opened(spec, hands)
    _tell({"card": device.card.name if device else None, "note": words})
    try:
        _govern(spec, device, hands, reports, recorder, lambda: bool(stopping))
    finally:
        code = _closed(device, hands)
        recorder.close()
    return code


def _govern(
    spec: GovernorSpec,
    device: Device | None,
    hands: Hands,
    reports: Reports,
    recorder: Recorder,
    should_stop: Callable[[], bool],
) -> None:
    """A period after the other, until the work ends or this process is asked to."""
    period_s = spec.config.period_s
    finish_s = None if spec.finish_at is None else time.monotonic() + spec.finish_at - time.time()
    engine = Engine(spec.num_sequences, spec.shares, finish_s)
    card = device.card if device else None

    def tell(sample: Sample | None, setting: Setting, state: str) -> None:
        now, now_s = datetime.now(UTC), time.monotonic()
        counters = engine.counters()
        recorder.record(now, now_s, card=card, sample=sample, setting=setting, state=state, counters=counters)
        _tell(_news(card, sample, setting, state))

    owned = isinstance(device, OwnedDevice)  # without a lease nothing is set that could not be put back
    config = spec.config if owned else replace(spec.config, control="observe")
    governor = Governor(device, hands, config, lambda setting: _publish(spec, setting), tell) if device else None
    due_s = time.monotonic()
    while not (reports.has_ended or should_stop()):
        if governor is not None:
            governor.tick(engine.load(time.monotonic()), time.monotonic())
        elif (counters := engine.counters()) is not None:
            recorder.record(datetime.now(UTC), time.monotonic(), counters=counters)
        due_s = max(due_s + period_s, time.monotonic())
        for report in reports.until(due_s):
            engine.hear(report, time.monotonic())
    if (counters := engine.counters()) is not None:  # with what the last report counted
        recorder.record(datetime.now(UTC), time.monotonic(), counters=counters)


def _publish(spec: GovernorSpec, setting: Setting) -> None:
    number = UNBOUNDED if setting.max_num_seqs is None else setting.max_num_seqs
    holds_s = _HOLDS_PERIODS * spec.config.period_s
    path = spec.run.engine_limit(spec.engine_index)
    write_limit(path, number, fallback=0, holds_s=holds_s, now_s=time.monotonic())


def _news(card: Card | None, sample: Sample | None, setting: Setting, state: str) -> dict[str, Any]:
    of = sample or Sample(0.0)
    known = {"temperature_c": of.temperature_c, "power_w": of.power_w, "sm_clock_mhz": of.sm_clock_mhz}
    return {"card": card.name if card else None, "state": state, "reason": setting.reason, **known}


def _tell(news: dict[str, Any]) -> None:
    with suppress(OSError, ValueError):  # the parent is gone: stdin's end says so as well
        sys.stdout.write(json.dumps(news) + "\n")
        sys.stdout.flush()


def _opened(spec: GovernorSpec, hands: Hands) -> tuple[Device | None, str | None]:
    """The engine's card, and what is to be said about it; None without one."""
    answer = hands.do(lambda: _first_card(spec), _OPENS_S)
    if answer is None:
        return None, f"the NVIDIA driver has not answered for {_OPENS_S:.0f} s: nothing is read or set"
    if answer.value is None:
        return None, str(answer.error)
    return answer.value


def _first_card(spec: GovernorSpec) -> tuple[Device | None, str | None]:
    from tasks.governor.nvml import cards

    left = [str(done) for done in restore_all(state_dir(), open_card) if done.outcome is not Outcome.HELD]
    device, words = _seen_card(spec, cards())
    return device, "; ".join(filter(None, (*left, words))) or None


def _seen_card(spec: GovernorSpec, found: "Found") -> tuple[Device | None, str | None]:
    seen = visible(found.cards, os.environ)
    if not seen:
        return None, found.reason if not found.cards else "CUDA_VISIBLE_DEVICES shows no card"
    device = open_card(seen[0].uuid)
    config, limit = spec.config, spec.run.engine_limit(spec.engine_index)
    if config.control != "managed":
        return device, None
    try:
        owned = OwnedDevice(device, state_dir(), FACTORY, period_s=config.period_s, limit=limit)
    except (LockedError, DamageError, CardError) as error:
        return device, f"{error}: only the sequences in flight are bounded"
    return owned, f"{seen[0].name}: {owned.found}" if owned.found else None


def _closed(device: Device | None, hands: Hands) -> int:
    """Put everything back. When the card does not answer, its guard goes on trying."""
    if device is None:
        return 0
    answer = hands.do(device.close, _CLOSES_S)
    words = "the card has not answered, and is not put back yet: its guard goes on" if answer is None else answer.error
    if words is not None:
        _tell({"note": str(words)})
        return 1
    if isinstance(device, OwnedDevice) and device.restoration is not None:
        _tell({"note": f"{device.card.name}: {device.restoration.text}"})
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except NightbatchError as error:
        _tell({"note": str(error)})
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread may be held by the driver for good
