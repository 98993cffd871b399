"""Goal 8: what the journal costs, every step journaled with syncing, against the same engine without it.

Real vLLM decodes a full batch; blocks of steps with and without the journal alternate within one run, and each block is
divided by the mean of its two neighbours without. The same is done with blocks that all lack it (A/A), which is the noise of
the rig. Beside that the time spent in `append` itself is put against the time of its step, which has no such noise.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.engine import open_engine, open_sequences
from benchmarks.rig import interval, record, result
from tasks.core.request import StepOutput
from tasks.engine.vllm import VLLMEngine
from tasks.journal.writer import TokenJournal

NAME = "journal_overhead"


def block(engine: VLLMEngine, num_steps: int, append: Callable[[Sequence[StepOutput]], None]) -> tuple[float, float]:
    """So many steps; the seconds they took, and those of them that went into `append`."""
    began, appending = time.perf_counter(), 0.0
    for _ in range(num_steps):
        outputs = engine.step()
        before = time.perf_counter()
        append(outputs)
        appending += time.perf_counter() - before
    return time.perf_counter() - began, appending


def ratios(times: Sequence[float]) -> list[float]:
    """Every second one divided by the mean of its neighbours."""
    return [2 * times[i] / (times[i - 1] + times[i + 1]) for i in range(1, len(times) - 1, 2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=61, help="Of each kind of run, journal and A/A.")
    parser.add_argument("--steps", type=int, default=6, help="In one block.")
    given = parser.parse_args()
    num_tokens = 2 * given.blocks * given.steps + 50
    engine = open_engine(given.max_num_seqs, max_model_len=num_tokens + 256)
    sequences = open_sequences(engine, given.max_num_seqs, num_tokens)
    with tempfile.TemporaryDirectory() as folder, TokenJournal(Path(folder), 0, bytes(32), sync_interval_s=1.0) as journal:
        for sequence in sequences:
            journal.begin(sequence.key)
        block(engine, 20, lambda outputs: None)
        runs = [block(engine, given.steps, journal.append if i % 2 else lambda outputs: None) for i in range(given.blocks)]
        plain = [block(engine, given.steps, lambda outputs: None) for _ in range(given.blocks)]
    overhead = [value - 1 for value in ratios([took for took, _ in runs])]
    noise = interval([value - 1 for value in ratios([took for took, _ in plain])])
    direct = interval([appending / took for took, appending in runs[1::2]])
    found = interval(overhead)
    detail = {"seqs": given.max_num_seqs, "step_ms": 1000 * interval([took / given.steps for took, _ in runs]).median}
    detail |= {"append_us": 1e6 * interval([one / given.steps for _, one in runs[1::2]]).median}
    share, blocks = "time in append / time of its step", "blocks with / without, minus 1"
    record(
        [
            result(NAME, "8", share, direct, "<= 0.005", direct.high <= 0.005, **detail),
            result(NAME, "8", blocks, found, "<= 0.005", found.high <= 0.005, **detail, noise=str(noise)),
        ]
    )


if __name__ == "__main__":
    main()
