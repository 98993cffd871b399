"""Goal 10: how long a resume takes before the first new token, beyond a bare start of the engine; and the replay rate.

A plan of 100,000 requests of which 10,000 are partly answered, once as their journal was written and once with the other
90,000 answered as well. The real engine child starts on it and on a plan of eight requests with an empty journal (the bare
start), in turn, and what is timed is from the start of the process to its first report of a new token.
"""

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from benchmarks.engine import MODEL, make_sequences
from benchmarks.pipeline_overhead import write_plan
from benchmarks.rig import Result, interval, record, result
from tasks.core.config import EngineConfig
from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, StepOutput
from tasks.engine.models import resolve_model
from tasks.engine.supervisor import Report, Supervisor
from tasks.engine.triage import Orders
from tasks.generate.resume import remaining
from tasks.journal.compact import compact
from tasks.journal.replay import replay_run
from tasks.journal.segments import segments
from tasks.journal.writer import TokenJournal
from tasks.storage.atomic import write_json
from tasks.storage.layout import Run
from tasks.worker import WorkerSpec, read_plan

NAME = "resume"
_RUN = bytes(32)


def write_journal(run: Run, sequences: list[PlannedSequence], num_partial: int, num_tokens: int, *, finish: bool) -> int:
    """As a run with 256 sequences in flight would have written it; the number of its records (a sequence's step)."""
    rng, records = random.Random(0), 0
    partial = sequences[-num_partial:]
    waiting = iter([*(sequences[:-num_partial] if finish else ()), *partial])
    cut = {sequence.key for sequence in partial}
    with TokenJournal(run.journals, 0, _RUN) as journal:
        left: dict[int, int] = {}
        while True:
            while len(left) < 256 and (sequence := next(waiting, None)) is not None:
                journal.begin(sequence.key)
                left[sequence.key] = rng.randint(1, 2 * num_tokens)
            if not left:
                return records
            outputs = []
            for key in list(left):
                left[key] -= 1
                ended = left[key] == 0
                outputs.append(StepOutput(key, (records % 40_000,), FinishReason.STOP if ended and key not in cut else None))
                records += 1
                if ended:
                    del left[key]
            journal.append(outputs)


class _Heard(Exception):  # noqa: N818  it is no error
    """The child has made a new token."""


def first_token_s(run: Run, num_sequences: int) -> float:
    """Start the real engine child on a run; the seconds until its first new token, with which it is put down."""
    config = EngineConfig(max_num_seqs=8)
    spec = WorkerSpec(run.run_id, _RUN.hex(), str(run.home), str(run.journals), str(resolve_model(MODEL).path), "auto", 2048,
                      num_sequences, config)  # fmt: skip
    heard = 0.0

    def on_report(report: Report) -> None:
        nonlocal heard
        if report.get("generated_tokens"):
            heard = time.monotonic()
            raise _Heard

    def give_orders(orders: Orders) -> None:
        write_json(run.engine_orders(0), orders.to_dict())

    command = [sys.executable, "-P", "-m", "tasks.worker", str(spec.write())]
    supervisor = Supervisor(command, dict(os.environ), run.engine_log(0), config, on_report, give_orders)
    began = time.monotonic()
    with contextlib.suppress(_Heard):
        supervisor.run()
    return heard - began


def replay_rates(run: Run, unit: str) -> list[float]:
    """Records or tokens a second, fifteen times, after once to have the file in memory."""
    rates = []
    for _ in range(16):
        began = time.perf_counter()
        known = replay_run(run.journals, _RUN.hex())
        rates.append((known.num_tokens if unit == "tokens" else known.num_entries) / (time.perf_counter() - began))
    return rates[1:]


def own_work_s(run: Run) -> list[float]:
    """Seconds of what a resume does itself: replay, the plan up to the first eight sequences, a new segment; ten times."""
    times = []
    for _ in range(11):
        began = time.perf_counter()
        known = replay_run(run.journals, _RUN.hex())
        work = remaining(read_plan(run, known.ended), known.progress, lambda sampling: True)
        list(islice(work, 8))
        journal = TokenJournal(run.journals, 0, _RUN)
        times.append(time.perf_counter() - began)
        journal.close()
    return times[1:]


def measure(run: Run, bare: Run, given: argparse.Namespace, case: str, records: int, unit: str = "records") -> list[Result]:
    """The replay rate and the time to the first token of one journal. A compacted one has a record for each answer, so there
    the tokens are what a rate can be said of."""
    rates, own, extra = interval(replay_rates(run, unit)), interval(own_work_s(run)), []
    for pair in range(given.pairs):
        with tempfile.TemporaryDirectory() as folder:
            journals = Path(folder) / "journals"
            shutil.copytree(run.journals, journals)
            of = replace(run, journals=journals)
            order = ("bare", "resumed") if pair % 2 else ("resumed", "bare")
            times = {
                which: first_token_s(bare if which == "bare" else of, 8 if which == "bare" else given.rows)
                for which in order
            }
            shutil.rmtree(bare.journals, ignore_errors=True)
        extra.append(times["resumed"] - times["bare"])
        sys.stderr.write(f"{case}: {times['resumed']:.2f} s, bare {times['bare']:.2f} s\n")
    detail = {"case": case, "records": records, "MB": sum(path.stat().st_size for path in segments(run.journals)) / 1e6}
    target, is_goal = ("<= 0.5", True) if "partial" in case else ("reported", False)
    own_work, start = "s of a resume's own work before the first step", "s to the first new token beyond a bare start"
    results = [
        result(NAME, "10", f"{unit} replayed a second", rates, ">= 2e6", rates.low >= 2e6, **detail),
        result(NAME, "10", own_work, own, target, own.high <= 0.5 or not is_goal, **detail),
    ]
    if extra:
        more = interval(extra)
        results.append(result(NAME, "10", start, more, target, more.high <= 0.5 or not is_goal, **detail))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--partial", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=64, help="Mean number of tokens of an answer so far.")
    parser.add_argument("--pairs", type=int, default=5, help="Of real engine starts; 0 measures the own work alone.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        sequences = make_sequences(given.rows, 256)
        run = Run("run", home / "home", home / "partial")
        write_plan(run, sequences)
        bare = Run("bare", home / "bare", home / "bare-journals")
        write_plan(bare, sequences[:8])
        results = []
        records = write_journal(run, sequences, given.partial, given.tokens, finish=False)
        results += measure(run, bare, given, f"{given.partial:,} partial, nothing else begun", records)
        run = replace(run, journals=home / "all")
        records = write_journal(run, sequences, given.partial, given.tokens, finish=True)
        results += measure(run, bare, given, "the other 90 % answered, as first written", records)
        compact(run.journals, 0, _RUN, replay_run(run.journals, _RUN.hex()))
        results += measure(run, bare, given, "the same, compacted by an earlier resume", given.rows, "tokens")
        record(results)


if __name__ == "__main__":
    main()
