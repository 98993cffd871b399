"""What the governor hears of the engine: shares of prefill, progress, and how fast."""

import pytest

from tasks.core.step import PREFILL_STEPS
from tasks.governor.load import Engine, share_ahead

REPORT = {"phase": "running", "seconds": 1.0, "found_finished": 10, "finished": 0, "failed": 0, "running": 8, "waiting": 2}


@pytest.mark.parametrize(("begun", "ahead", "mean"), [(0.0, 0.25, 0.0), (0.25, 0.5, 0.75), (0.9, 0.5, 0.2), (1.0, 0.0, 0.2)])
def test_what_is_ahead(begun: float, ahead: float, mean: float) -> None:
    """The slices from here on over the given stretch; at the end the last one."""
    assert share_ahead([0.0, 0.5, 1.0, 0.2], begun, ahead) == pytest.approx(mean)


def test_nothing_planned_is_nothing_known() -> None:
    """Without a plan's shares there is no feed-forward."""
    assert share_ahead([], 0.0, 0.1) is None


def test_an_engine_that_has_said_nothing() -> None:
    """Before the first report nothing runs and nothing is known."""
    engine = Engine(100, (), None)
    load = engine.load(5.0)
    assert (load.running, load.prefill, load.rate, load.seconds_left) == (0, None, None, None)
    assert engine.counters() is None


def test_progress_and_pace() -> None:
    """Done is of all sequences, those of earlier sessions among them; the pace is of the last two minutes."""
    engine = Engine(100, (0.0, 1.0), finish_s=1000.0)
    for second in range(300):
        ended = 10 if second < 200 else 10 + (second - 199) // 2
        engine.hear({**REPORT, "finished": ended - 10, "max_num_seqs": 64}, float(second))
    load = engine.load(299.0)
    assert load.done == pytest.approx(0.6)
    assert load.rate == pytest.approx(0.5 / 120, rel=0.02)
    assert load.seconds_left == pytest.approx(701.0)
    assert (load.running, load.max_num_seqs, load.prefill_ahead) == (10, 64, 1.0)


def test_prefill_is_a_share_of_recent_time() -> None:
    """By steps and prompt tokens since a few seconds ago; a new life of the engine begins anew."""
    engine = Engine(100, (), None)
    engine.hear({"phase": "loading", "found_finished": 0}, 0.0)
    for second in range(20):
        tokens = int(512 * 10 * second) if second >= 10 else 0
        engine.hear({**REPORT, "steps": 10 * second, "prefilled_tokens": tokens}, float(second))
    assert engine.load(19.0).prefill == pytest.approx(0.5)
    assert pytest.approx(1 / 512) == PREFILL_STEPS
    engine.hear({"phase": "loading", "found_finished": 0}, 20.0)
    assert engine.load(20.0).prefill is None
    engine.hear({**REPORT, "steps": 3, "prefilled_tokens": 7, "generated_tokens": 5}, 21.0)
    counters = engine.counters()
    assert counters is not None
    assert (counters.life, counters.steps, counters.generated_tokens, counters.kv_use) == (1, 3, 5, None)
    assert counters.counted_s == 21.0
