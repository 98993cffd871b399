"""The engine child: `python -m tasks.worker SPEC SUPERVISOR_PID REPORT_FD`. Composition root of that process.

It owns the device and its journal: reads the plan, replays what is there, runs what is left and not held back by its
orders, and ends with 0 (all that is done), 75 (put down on request; everything generated is in the journal) or 3 (has said
why it cannot run).
"""

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasks.core.config import EngineConfig, JournalConfig
from tasks.core.counters import EngineCounters
from tasks.core.errors import NightbatchError, in_words
from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine, Room
from tasks.core.request import Progress, SamplingParams
from tasks.engine.child import Reporter, StopRequest, WatchedEngine, die_with
from tasks.engine.echo import EchoEngine
from tasks.engine.speed import add_speed
from tasks.engine.supervisor import STOPPED, UNFIT
from tasks.engine.triage import Orders
from tasks.generate.admission import KVAdmission, Unbounded
from tasks.generate.loop import Tally, generate
from tasks.generate.probe import answers_again
from tasks.generate.resume import remaining
from tasks.job import ECHO
from tasks.journal.compact import compact, is_worth_it
from tasks.journal.replay import Replay, replay_run
from tasks.journal.writer import TokenJournal
from tasks.storage.atomic import read_json, write_json
from tasks.storage.layout import Run
from tasks.storage.limit import Limit
from tasks.storage.lock import RunLock
from tasks.storage.parquet import read_rows
from tasks.storage.prompts import PromptFile

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.02
"""How soon a pause notices its end."""
_COLUMNS = ("key", "request_id", "choice_index", "batch_id", "source", "predicted_tokens", "sampling", "prompt")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a child must know, as a JSON file: so that a person can start it again by hand. Paths are absolute."""

    run_id: str
    fingerprint: str
    home: str
    journals: str
    model: str
    dtype: str
    max_model_len: int
    num_sequences: int
    engine: EngineConfig = field(default_factory=EngineConfig)
    journal: JournalConfig = field(default_factory=JournalConfig)
    engine_index: int = 0

    @property
    def run(self) -> Run:
        return Run(self.run_id, Path(self.home), Path(self.journals))

    def write(self) -> Path:
        path = self.run.engine_spec(self.engine_index)
        write_json(path, asdict(self))
        return path

    @staticmethod
    def read(path: Path) -> "WorkerSpec":
        values: dict[str, Any] = read_json(path) or {}
        configs = {"engine": EngineConfig(**values["engine"]), "journal": JournalConfig(**values["journal"])}
        return WorkerSpec(**{**values, **configs})


def main(arguments: list[str]) -> int:
    """Run one child to its end; the exit code."""
    spec, supervisor_pid = WorkerSpec.read(Path(arguments[0])), int(arguments[1])
    report = Reporter(int(arguments[2]))
    die_with(supervisor_pid)
    try:
        with RunLock(spec.run.engine_lock(spec.engine_index), wait_s=10.0):
            return _work(spec, supervisor_pid, report)
    except NightbatchError as error:
        report({"phase": "failed", "reason": str(error)}, force=True)
        traceback.print_exc()
    except OSError as error:
        report({"phase": "failed", "reason": in_words(error)}, force=True)
        traceback.print_exc()
    return UNFIT


def _work(spec: WorkerSpec, supervisor_pid: int, report: Reporter) -> int:
    known = replay_run(spec.run.journals, spec.fingerprint)
    orders = Orders.from_dict(read_json(spec.run.engine_orders(spec.engine_index)) or {})
    _write_verdicts(spec, orders, known)
    found = {
        "found_tokens": known.num_tokens,
        "found_finished": known.num_final,
        "found_finished_tokens": known.num_final_tokens,
    }
    for damage in known.damages:
        report({"phase": "damage", "reason": str(damage), "is_torn_tail": damage.is_torn_tail}, force=True)
    report({"phase": "loading", **found}, force=True)
    held = {key for key in orders.held if key not in known.progress or not known.progress[key].is_final}
    nothing_to_do = known.num_final == 0 if orders.probe else known.num_final + len(held) == spec.num_sequences
    if nothing_to_do:
        report({"phase": "done", "generated_tokens": 0, **found}, force=True)
        return 0
    if is_worth_it(known, spec.journal.compact_bytes):
        compact(spec.run.journals, spec.engine_index, bytes.fromhex(spec.fingerprint), known)
    opened = _open_engine(spec)
    engine = opened.engine
    stop = StopRequest(supervisor_pid)
    telling = _Telling(report, opened, found)
    if orders.probe:
        report({"phase": "admitted", "keys": []}, force=True)
        tally = answers_again(read_plan(spec.run), known.progress, engine, should_stop=lambda: bool(stop))
    else:
        watched = WatchedEngine(engine, report)
        with _open_journal(spec) as journal:
            allowed = read_plan(spec.run, without=[*known.ended, *held])
            tally = generate(
                remaining(allowed, known.progress, engine.continues_exactly),
                watched,
                journal,
                max_num_seqs=opened.max_num_seqs,
                should_stop=lambda: bool(stop),
                on_step=telling.stepped,
                room=opened.room,
                allowed=Limit(spec.run.engine_limit(spec.engine_index)).max_num_seqs,
                pause=telling.paused,
            )
    telling.ended(tally, "stopped" if stop else "done")
    opened.keep_speed()
    return STOPPED if stop else 0


class _Telling:
    """What the supervisor hears while the engine works."""

    def __init__(self, report: Reporter, opened: "_Opened", found: dict[str, int]) -> None:
        self._report = report
        self._opened = opened
        self._found = found
        self._began = time.monotonic()
        self._counts = self._of(Tally())

    def _of(self, tally: Tally) -> dict[str, Any]:
        known = {name: value for name, value in asdict(self._opened.counters()).items() if value is not None}
        engine = {**known, "max_num_seqs": self._opened.max_num_seqs}
        return {**engine, "seconds": time.monotonic() - self._began, **asdict(tally), **self._found}

    def stepped(self, tally: Tally) -> None:
        if self._report.is_due:
            self._counts = self._of(tally)
            self._report({"phase": "running", **self._counts})

    def paused(self) -> None:
        """A little of a pause, in which nothing changes."""
        self._report({"phase": "paused", **self._counts})
        time.sleep(_LOOK_EVERY_S)

    def ended(self, tally: Tally, phase: str) -> None:
        self._report({"phase": phase, **self._of(tally)}, force=True)


def _write_verdicts(spec: WorkerSpec, orders: Orders, known: Replay) -> None:
    """Journal the sequences that the supervisor has given up, once."""
    entries = {key: known.progress.setdefault(key, Progress()) for key in orders.condemned}
    new = {key: reason for key, reason in orders.condemned.items() if not entries[key].is_final}
    if new:
        with _open_journal(spec) as journal:
            for key, reason in new.items():
                journal.fail(key, reason)
                entries[key].error = reason


def _open_journal(spec: WorkerSpec) -> TokenJournal:
    return TokenJournal(
        spec.run.journals,
        spec.engine_index,
        bytes.fromhex(spec.fingerprint),
        sync_interval_s=spec.journal.sync_every_s,
        segment_bytes=spec.journal.segment_bytes,
    )


@dataclass(frozen=True, slots=True)
class _Opened:
    """An engine, how much it may have at once, and what to do with the speed of its steps at the end."""

    engine: Engine
    max_num_seqs: int
    room: Room
    counters: Callable[[], EngineCounters]
    keep_speed: Callable[[], None] = lambda: None


def _open_engine(spec: WorkerSpec) -> _Opened:
    if spec.model.partition(":")[0] == ECHO:
        max_num_seqs = spec.engine.max_num_seqs or 64
        echo = EchoEngine(max_num_seqs, float(spec.model.partition(":")[2] or 0))
        return _Opened(echo, max_num_seqs, Unbounded(), echo.counters)
    from tasks.engine.vllm import VLLMEngine

    engine = VLLMEngine(Path(spec.model), spec.engine, dtype=spec.dtype, max_model_len=spec.max_model_len)

    def keep_speed() -> None:
        try:
            add_speed(spec.run.speed, engine.identity, engine.step_sums)
        except OSError as error:  # an estimate for later plans; all answers are in the journal
            _log.warning("the speed of the steps was not kept: %s", error)

    room = Unbounded() if engine.kv_shape is None else KVAdmission(engine.kv_shape)
    return _Opened(engine, engine.max_num_seqs, room, engine.counters, keep_speed)


def read_plan(run: Run, without: Sequence[int] = ()) -> Iterator[PlannedSequence]:
    """The planned sequences in order, but for those whose keys are given."""
    with PromptFile(run.prompts) as prompts:
        for row in read_rows(run.plan, _COLUMNS, without={"key": without}):
            prompt = tuple(prompts.token_ids(row.pop("prompt")).tolist())
            sampling = SamplingParams.from_json(row.pop("sampling"))
            yield PlannedSequence(**row, sampling=sampling, prompt_token_ids=prompt)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # all is durable, and taking vLLM down in good order lasts seconds; the kernel frees the device
