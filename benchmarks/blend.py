"""Does density blending pay? Prefill-heavy and decode-heavy sources one after the other, against their units in turn.

    python -m benchmarks.blend [--pairs 5] [--record]

Simulated engine; the seconds of a step by the CPU's fitted model, where costs add up, and by a roofline, where a step lasts
the longer of its compute and its memory traffic, as on a GPU (the parameters are at the top). Units of 16 sequences; the
first source sends long prompts with short answers, the second the reverse, with about as much memory time as the first has
compute. Only steps of few tokens can overlap the two: with a budget of 8,192 a prefill's step lasts as long as the memory
traffic of dozens, and nothing is gained.
"""

import argparse
import random
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.rig import Result, interval, record, result
from benchmarks.served import Night, simulate
from benchmarks.tail import STEPS
from tasks.core.plan import PlannedSequence
from tasks.core.request import SamplingParams
from tasks.core.step import StepLoad
from tasks.engine.scheduling import EngineShape
from tasks.plan.blend import blended_order

NAME = "blend"
SHAPE = EngineShape(block_size=16, num_blocks=28_000, max_num_seqs=256, max_num_batched_tokens=512)
UNIT = 16
COMPUTE_S, READ_S, CONTEXT_S = 32e-6, 4.8e-3, 39e-9
"""An H100 by its data sheet with an 8 B model in bfloat16: 16 GFLOP a token at half of 989 TFLOP/s; 16 GB of weights a step
and 131 kB of KV a token of decode context at 3.35 TB/s."""


def two_sources(seed: int, number: int) -> list[PlannedSequence]:
    rng = random.Random(seed)
    lengths = [(rng.randint(1500, 2500), rng.randint(4, 16)) for _ in range(number // 3)]
    lengths += [(rng.randint(300, 600), rng.randint(600, 1400)) for _ in range(number)]
    return [
        PlannedSequence(
            i,
            str(i),
            0,
            0,
            tuple(rng.randrange(1000, 40_000) for _ in range(prompt)),
            SamplingParams(max_tokens=output),
            "s",
        )
        for i, (prompt, output) in enumerate(lengths)
    ]


def blended(plan: list[PlannedSequence]) -> list[PlannedSequence]:
    """The units in the order of the two scanners, by the compute of their prefill and the memory time of their decoding."""
    units = [plan[i : i + UNIT] for i in range(0, len(plan), UNIT)]
    prefill = np.array([sum(len(one.prompt_token_ids) for one in unit) * COMPUTE_S for unit in units])
    decode = np.array([sum(one.sampling.max_tokens for one in unit) * READ_S / SHAPE.max_num_seqs for unit in units])
    return [one for at in blended_order(prefill, decode) for one in units[at]]


def roofline_s(load: StepLoad) -> float:
    """The longer of compute and memory traffic."""
    return max(COMPUTE_S * (load.prefill_tokens + load.decode_seqs), READ_S + CONTEXT_S * load.context_tokens)


def measure(plans: Sequence[list[PlannedSequence]]) -> list[Result]:
    """Time of the plain order over that of the blended one."""
    ratios: dict[str, list[float]] = {"CPU's steps": [], "roofline": []}
    for plan in plans:
        lengths = {one.key: one.sampling.max_tokens for one in plan}
        plain, mixed = (simulate(order, lengths, SHAPE, None) for order in (plan, blended(plan)))
        ratios["CPU's steps"].append(plain.seconds(STEPS["CPU"]) / mixed.seconds(STEPS["CPU"]))
        ratios["roofline"].append(_roofline(plain) / _roofline(mixed))
        sys.stderr.write(f"{ {name: round(of[-1], 4) for name, of in ratios.items()} }\n")
    return [_result(name, of, len(plans[0])) for name, of in ratios.items()]


def _roofline(night: Night) -> float:
    return sum(map(roofline_s, night.loads))


def _result(name: str, ratios: list[float], number: int) -> Result:
    found = interval(ratios)
    return result(NAME, "-", f"{name}: sources in turn / blended", found, "> 1", found.low > 1, sequences=number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=1000, help="of the second source")
    parser.add_argument("--record", action="store_true", help="write the results down")
    given = parser.parse_args()
    found = measure([two_sources(seed, given.sequences) for seed in range(given.pairs)])
    for one in found:
        sys.stdout.write(f"{one.measure}: {one.value:.4f} [{one.low:.4f}, {one.high:.4f}]\n")
    if given.record:
        record(found)


if __name__ == "__main__":
    main()
