"""Goal 6 on S4: the night's end, against its work at the full rate and against the longest first with true lengths.

    python -m benchmarks.tail [--scale N] [--pairs 5] [--record]          simulated: long nights and short ones
    python -m benchmarks.tail --real [--scale 1] [--record]               one night on vLLM

Seconds by a step-time model. Ours: the plan by prefix, with the tail's order by predicted lengths (median and 95 % quantile
of the kind of question on the night before), and admission by KV need. The oracle has the true lengths, starts the longest
first and is admitted by them. What is planned without predictions is printed beside it, and the seconds that the order of a
million sequences takes.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.admission import open_small, open_tokenizer, sorted_plan
from benchmarks.rig import Result, interval, record, result
from benchmarks.served import Night, serve, simulate, true_lengths, upper_lengths
from benchmarks.suites import BLOCK_SIZE, Suite, make_suite
from tasks.core.plan import PlannedSequence
from tasks.core.step import KVShape
from tasks.engine.scheduling import EngineShape
from tasks.engine.step_time import StepTime
from tasks.generate.admission import KVAdmission
from tasks.plan.tail import full_rate, tail_order

NAME = "tail"
STEPS = {
    "CPU": StepTime(
        step_s=0.027, prefill_token_s=1.25e-3, decode_seq_s=1.88e-3, context_token_s=0.0, num_steps=284, error=0.069
    ),
    "GPU": StepTime(step_s=4.8e-3, prefill_token_s=32e-6, decode_seq_s=5e-6, context_token_s=39e-9, num_steps=0, error=0.0),
}
"""CPU: the embedded model on one thread, fitted to the CPU seconds of 284 decode-heavy steps of benchmarks.settings. GPU: an
8 B model in bfloat16 on an H100 by its data sheet (3.35 TB/s; 989 TFLOP/s, of which half is reached)."""
_BUDGET = 2048


def tail_ordered(suite: Suite, in_flight: float, step: StepTime) -> list[PlannedSequence]:
    """The plan with what runs long moved ahead, by its predictions."""
    plan, uppers = sorted_plan(suite, "kind"), upper_lengths(suite)
    predicted = [
        np.nan if one.predicted_tokens is None else min(one.predicted_tokens, one.sampling.max_tokens) for one in plan
    ]
    prompts = [len(one.prompt_token_ids) for one in plan]
    seconds = step.step_s + in_flight * step.decode_seq_s + in_flight * float(np.mean(prompts)) * step.context_token_s
    cost, duration = full_rate(
        np.array(prompts),
        np.array(predicted, dtype=np.float64),
        np.array([min(uppers[one.key], one.sampling.max_tokens) for one in plan]),
        num_in_flight=in_flight,
        prefill_token_s=step.prefill_token_s,
        step_s=seconds,
    )
    return [plan[i] for i in tail_order(cost, duration)]


def longest_first(suite: Suite) -> list[PlannedSequence]:
    """The oracle's order, with the true lengths as predictions."""
    plan, lengths = sorted_plan(suite, "truth"), true_lengths(suite)
    return sorted(plan, key=lambda one: -lengths[one.key])


def night(plan: Sequence[PlannedSequence], suite: Suite, shape: EngineShape) -> Night:
    room = KVAdmission(KVShape(shape.usable_blocks, BLOCK_SIZE))
    return simulate(plan, true_lengths(suite), shape, room)


def measure(suites: list[Suite], max_num_seqs: int, blocks: float, device: str) -> list[Result]:
    """Tail and oracle on each night."""
    shares: dict[str, list[float]] = {"ours": [], "no predictions": [], "no tail order": [], "oracle": []}
    ratios, step = [], STEPS[device]
    for suite in suites:
        shape = EngineShape(BLOCK_SIZE, int(suite.num_blocks * blocks), max_num_seqs, _BUDGET)
        first = night(sorted_plan(suite, "kind"), suite, shape)
        in_flight = float(np.median([load.decode_seqs for load in first.loads[: first.fed_steps]]))
        nights = {
            "ours": night(tail_ordered(suite, in_flight, step), suite, shape),
            "no tail order": first,
            "no predictions": night(sorted_plan(suite, "none"), suite, shape),
            "oracle": night(longest_first(suite), suite, shape),
        }
        seconds = {name: one.seconds(step) for name, one in nights.items()}
        for name, one in nights.items():
            shares[name].append(1 - one.full_rate_seconds(step) / seconds[name])
        ratios.append(seconds["ours"] / seconds["oracle"])
        shown = ", ".join(f"{name} {shares[name][-1]:.2%} of {seconds[name]:.0f} s" for name in nights)
        sys.stderr.write(f"{device}, batch {max_num_seqs}: {shown}; ours / oracle {ratios[-1]:.4f}\n")
    detail = {name.replace(" ", "_"): interval(of).median for name, of in shares.items() if name != "ours"}
    detail |= {"nights": len(suites), "batch": max_num_seqs}
    share, ratio = interval(shares["ours"]), interval(ratios)
    what = f"simulated, {device}'s steps, {len(suites[0].items)} sequences"
    return [
        result(NAME, "6", f"{what}: (T - work at full rate) / T", share, "<= 0.02", share.high <= 0.02, **detail),
        result(NAME, "6", f"{what}: T / longest first by true lengths", ratio, "<= 1.01", ratio.high <= 1.01),
    ]


def real(suite: Suite, max_num_seqs: int) -> list[Result]:
    """Ours and the oracle's on vLLM, the seconds by the CPU's model of its steps: a clock would measure the neighbours."""
    engine, cache = open_small(max_num_seqs)
    shape, step, lengths = replace(engine.shape, num_blocks=suite.num_blocks), STEPS["CPU"], true_lengths(suite)
    seconds, share = {}, {}
    orders = {"ours": tail_ordered(suite, max_num_seqs, step), "plain": sorted_plan(suite, "kind")}
    for name, plan in (orders | {"oracle": longest_first(suite)}).items():
        room = KVAdmission(KVShape(shape.usable_blocks, BLOCK_SIZE))
        one = serve(engine, cache, plan, lengths, suite.num_blocks, room)
        seconds[name], share[name] = one.seconds(step), 1 - one.full_rate_seconds(step) / one.seconds(step)
    ratio = seconds["ours"] / seconds["oracle"]
    detail = {"sequences": len(suite.items), "no_tail_order": share["plain"], "oracle": share["oracle"]}
    return [
        result(NAME, "6", "vLLM: (T - work at full rate) / T", share["ours"], "<= 0.02", share["ours"] <= 0.02, **detail),
        result(NAME, "6", "vLLM: T / longest first by true lengths", ratio, "<= 1.01", ratio <= 1.01),
    ]


def a_million() -> Result:
    """The order of a million sequences."""
    rng = np.random.default_rng(0)
    duration, seconds = np.minimum(rng.lognormal(4.5, 1.1, 1_000_000), 4000.0), []
    for _ in range(5):
        began = time.perf_counter()
        tail_order(duration / 256, duration)
        seconds.append(time.perf_counter() - began)
    found = interval(seconds)
    return result(NAME, "6", "tail order of 1 M sequences, s", found, "<= 1", found.high <= 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="on vLLM instead of the simulated engine")
    parser.add_argument("--scale", type=float, default=None)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="write the results down")
    given = parser.parse_args()
    if given.real:
        found = real(make_suite("S4", open_tokenizer(), scale=given.scale or 1), 32)
    else:
        found = [a_million()]
        for scale in (given.scale,) if given.scale else (40.0, 6.0):
            suites = [make_suite("S4", open_tokenizer(), scale=scale, seed=seed) for seed in range(given.pairs)]
            found += [one for device in STEPS for one in measure(suites, 64, 1.0, device)]
    for one in found:
        sys.stdout.write(f"{one.measure}: {one.value:.5f} [{one.low:.5f}, {one.high:.5f}] {one.detail}\n")
    if given.record:
        record(found)


if __name__ == "__main__":
    main()
