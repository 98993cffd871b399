"""Engine settings on this device: CPU seconds by sequences in flight, on decode-heavy and prefill-heavy work.

One engine whose batch holds the most; fewer in flight is the same engine fed less. Each round runs all sizes, in an order
that turns; a ratio is that of a size to 64 within one round. On one thread and in CPU seconds, since on a shared machine the
seconds of a clock measure the neighbours. The steps' loads and CPU seconds can be kept, to fit a step-time model to
(`--steps FILE`).
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path

import numpy as np

os.environ["OMP_NUM_THREADS"] = "1"

from benchmarks.engine import make_sequences, open_engine
from benchmarks.rig import Result, interval, record, result
from tasks.core.plan import PlannedSequence
from tasks.engine.vllm import VLLMEngine

NAME = "settings"
SIZES = (32, 64, 96, 128)
WORK = {"decode": (128, 16, 32), "prefill": (16, 4, 512)}
"""Sequences, output tokens and prompt tokens of each kind of work."""

Steps = list[tuple[float, ...]]


def drain(engine: VLLMEngine, sequences: list[PlannedSequence], in_flight: int, steps: Steps) -> float:
    """Run all of it with so many in flight; its CPU seconds. Each step's and its load are added to `steps`."""
    waiting, began = list(reversed(sequences)), time.process_time()
    while waiting or engine.num_unfinished:
        while waiting and engine.num_unfinished < in_flight:
            engine.add_request(waiting.pop(), ())
        before = time.process_time()
        engine.step()
        after, load = time.process_time(), engine.last_load
        steps.append((after - before, load.prefill_tokens, load.decode_seqs, load.context_tokens))
    return time.process_time() - began


def measure(engine: VLLMEngine, kind: str, rounds: int, steps: Steps, keep: Path | None) -> list[Result]:
    """Speed by sequences in flight, against 64 of them."""
    number, max_tokens, num_prompt = WORK[kind]
    seconds: dict[int, list[float]] = {size: [] for size in SIZES}
    for turn in range(rounds):
        sizes = list(SIZES)
        random.Random(turn).shuffle(sizes)
        for size in sizes:
            work = make_sequences(number, max_tokens, num_prompt=num_prompt, seed=1000 * turn + size)
            seconds[size].append(drain(engine, work, size, steps))
            sys.stderr.write(f"{kind} {size}: {seconds[size][-1]:.2f} s\n")
            sys.stderr.flush()
            if keep:
                np.save(keep, np.array(steps))
    found = []
    for size in SIZES:
        ratio = interval([at_64 / at for at, at_64 in zip(seconds[size], seconds[64], strict=True)])
        rate = number * (num_prompt if kind == "prefill" else max_tokens) / interval(seconds[size]).median
        detail = {"rounds": rounds, "tokens_per_cpu_s": rate, "sequences": number}
        detail |= {"output": max_tokens, "prompt": num_prompt}
        found.append(result(NAME, "-", f"{kind}: CPU speed with {size} in flight / 64", ratio, "-", True, **detail))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=list(WORK))
    parser.add_argument("--steps", type=Path)
    parser.add_argument("--dry", action="store_true", help="print only")
    arguments = parser.parse_args()
    engine, steps, found = open_engine(max(SIZES)), list[tuple[float, ...]](), []
    drain(engine, make_sequences(64, 8), 64, [])
    for kind in arguments.kinds:
        found += measure(engine, kind, arguments.rounds, steps, arguments.steps)
    if arguments.dry:
        sys.stdout.writelines(
            f"{one.measure}: {one.value:.3f} [{one.low:.3f}, {one.high:.3f}] {one.detail}\n" for one in found
        )
    else:
        record(found)


if __name__ == "__main__":
    main()
