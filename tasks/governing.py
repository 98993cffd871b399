"""The governor beside a run: begun with it, told of its engine, and heard by people. Restored whatever happens."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from tasks.core.moment import moment
from tasks.governor.beside import Beside, News
from tasks.governor.process import GovernorSpec
from tasks.job import Job
from tasks.progress import Display
from tasks.storage.atomic import read_json

_COMMAND = [sys.executable, "-P", "-m", "tasks.governor.process"]
_AGAIN_S = 600.0
"""How long a state that has been told of is not told of again."""
_QUIET = ("Starting", "Nominal", "Unable")


class Governing:
    """What a run knows of its governor. `reason_to_stop` is why the engine may not go on, if so. That there is no card is
    told where one is asked for."""

    def __init__(self, display: Display, *, is_asked: bool) -> None:
        self._display = display
        self._is_asked = is_asked
        self._told_s: dict[str, float] = {}
        self._beside: Beside | None = None
        self._has_card = False
        self._latest: News = {}
        self.reason_to_stop: str | None = None

    def tell(self, report: Mapping[str, Any]) -> None:
        """A report of the engine's."""
        if self._beside is not None:
            self._beside.tell(report)

    @property
    def card(self) -> str:
        """The card's state in a few words; nothing where there is none."""
        temperature, power = self._latest.get("temperature_c"), self._latest.get("power_w")
        words = [f"{temperature:.0f} °C"] if temperature is not None else []
        words += [f"{power:.0f} W"] if power is not None else []
        words += [str(self._latest["state"]).lower()] if words and self._latest["state"] not in _QUIET else []
        return ", ".join(words)

    def _hear(self, news: News) -> None:
        self._has_card = self._has_card or bool(news.get("card"))
        note = news.get("note")
        if note and (self._has_card or self._is_asked):
            self._display.note(f"GPU: {note}")
        state = news.get("state")
        if state is None:
            return
        self._latest = news
        if state == "Lost":
            self.reason_to_stop = str(news["reason"])
        now = time.monotonic()
        if state not in _QUIET and now - self._told_s.get(state, -_AGAIN_S) >= _AGAIN_S:
            self._told_s[state] = now
            self._display.note(f"GPU {state.lower()}: {news['reason']}")

    def _broken(self, words: str) -> None:
        if self._has_card:
            self.reason_to_stop = f"{words}; --power off runs without it, and the card protects itself alone"
        else:
            self._display.note(f"{words}: no telemetry is kept")


@contextmanager
def governing(job: Job, num_sequences: int, display: Display) -> Iterator[Governing]:
    """The governor, while the block lasts; none when control is off."""
    power, found = job.config.power, Governing(display, is_asked=job.config.power.control == "managed")
    job.run.engine_limit(0).unlink(missing_ok=True)
    if power.control == "off":
        yield found
        return
    now = datetime.now(UTC)
    spec = GovernorSpec(
        run_id=job.run.run_id,
        home=str(job.run.home),
        journals=str(job.run.journals),
        num_sequences=num_sequences,
        config=power,
        shares=tuple(read_json(job.run.mix) or ()),
        finish_at=None if power.finish_by is None else moment(power.finish_by, now).timestamp(),
    )
    command = [*_COMMAND, str(spec.write())]
    with Beside(command, job.run.governor_log(0), found._hear, found._broken) as beside:
        found._beside = beside
        yield found
    job.run.engine_limit(0).unlink(missing_ok=True)
