"""Admission in the loop that the product runs, on the simulated engine."""

from pathlib import Path

import numpy as np
import pytest

from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Room
from tasks.core.request import FinishReason, SamplingParams
from tasks.core.step import KVShape
from tasks.engine.scheduling import Counters, EngineShape
from tasks.engine.simulated import SimulatedEngine
from tasks.generate.admission import KVAdmission
from tasks.generate.loop import generate
from tasks.generate.resume import Work
from tasks.journal.replay import replay
from tasks.journal.segments import segments
from tasks.journal.writer import TokenJournal

RUN, SHAPE = bytes(32), EngineShape(block_size=16, num_blocks=401, max_num_seqs=128, max_num_batched_tokens=1024)


def heavy_tailed(number: int) -> tuple[list[PlannedSequence], dict[int, int]]:
    rng = np.random.default_rng(0)
    medians = rng.choice(np.array([20, 80, 160]), number)
    lengths = {key: int(min(900, median * rng.lognormal(0, 0.5)) + 1) for key, median in enumerate(medians)}
    plan = [
        PlannedSequence(key, "", 0, 0, (key, *range(40)), SamplingParams(max_tokens=1000), "s", int(medians[key]))
        for key in lengths
    ]
    return plan, lengths


def serve(folder: Path, plan: list[PlannedSequence], lengths: dict[int, int], room: Room | None) -> Counters:
    """All answered; the engine's counters."""
    engine = SimulatedEngine(SHAPE, lambda sequence: lengths[sequence.key])
    with TokenJournal(folder, 0, RUN) as journal:
        generate(
            map(Work, plan),
            engine,
            journal,
            max_num_seqs=SHAPE.max_num_seqs,
            should_stop=lambda: False,
            on_step=lambda tally: None,
            room=room,
        )
    known = replay(segments(folder), RUN).progress
    assert {key: len(one.token_ids) for key, one in known.items()} == lengths
    assert all(one.finish_reason is FinishReason.STOP for one in known.values())
    return engine.counters


def test_hardly_anything_is_preempted_and_the_cache_is_full(tmp_path: Path) -> None:
    """Where vLLM's own admission loses a quarter of its work to preemptions, ours loses next to nothing."""
    plan, lengths = heavy_tailed(600)
    default = serve(tmp_path / "default", plan, lengths, None)
    ours = serve(tmp_path / "ours", plan, lengths, KVAdmission(KVShape(SHAPE.usable_blocks, SHAPE.block_size)))
    assert default.recomputed / default.computed > 0.2
    assert ours.recomputed / ours.computed < 0.003
    assert ours.computed < 0.75 * default.computed
    assert ours.steps < 1.15 * default.steps


@pytest.mark.parametrize("caution", [-100.0, 100.0])
def test_wrong_estimates_cost_time_and_nothing_else(tmp_path: Path, caution: float) -> None:
    """Far too bold, and vLLM preempts as ever; far too timid, and few run at once: every sequence is answered."""
    plan, lengths = heavy_tailed(60)
    serve(tmp_path, plan, lengths, KVAdmission(KVShape(SHAPE.usable_blocks, SHAPE.block_size), caution=caution))
