"""The step-time model, and where it is kept."""

from pathlib import Path

import numpy as np
import pytest

from tasks.core.step import StepLoad
from tasks.engine.speed import Identity, add_speed, read_speed
from tasks.engine.step_time import NUM_SKIPPED, StepSums, StepTime, StepTimer

TRUE = (0.02, 4e-4, 1.5e-3, 2e-7)
IDENTITY = Identity("model", "bfloat16", "vllm 1", "2 x CPU")


def session(
    num_steps: int, *, seed: int = 0, noise: float = 0.03, stalls: float = 0.0, true: tuple[float, ...] = TRUE
) -> StepTimer:
    """A session's steps, of prefill and decoding; a share of them stalls for up to twenty times as long."""
    rng, timer = np.random.default_rng(seed), StepTimer()
    for _ in range(num_steps):
        prefill, decode = int(rng.choice(np.array([0, 0, 0, rng.integers(1, 2048)]))), int(rng.integers(1, 64))
        load = StepLoad(prefill, decode, decode * int(rng.integers(20, 2000)) + prefill * 200)
        seconds = float(np.dot(true, (1, load.prefill_tokens, load.decode_seqs, load.context_tokens)))
        seconds *= max(1 + noise * rng.normal(), 0.1) * (rng.uniform(3, 20) if rng.random() < stalls else 1)
        timer.add(seconds, lambda load=load: load)  # type: ignore[misc]
    return timer


def whole(time: StepTime) -> float:
    return time.seconds(steps=1000, prefill_tokens=10**5, decode_tokens=3 * 10**4, context_tokens=10**7)


EXPECTED = float(np.dot(TRUE, (1000, 10**5, 3 * 10**4, 10**7)))


@pytest.mark.parametrize("stalls", [0.0, 0.15])
def test_the_work_of_a_night_is_foreseen(stalls: float) -> None:
    """The seconds of much work are right within a few percent, also when every seventh step stalled."""
    time = session(3000, stalls=stalls).sums().fit()
    assert time is not None
    assert whole(time) == pytest.approx(EXPECTED, rel=0.05)
    assert time.prefill_token_s == pytest.approx(TRUE[1], rel=0.1)
    assert time.num_steps == 3000 - NUM_SKIPPED
    assert time.error < 0.1


def test_no_work_gains_time() -> None:
    """Coefficients are at or above zero where the noise is larger than a term."""
    time = session(200, noise=0.5, true=(0.05, 1e-4, 0.0, 0.0)).sums().fit()
    assert time is not None
    assert min(time.step_s, time.prefill_token_s, time.decode_seq_s, time.context_token_s) >= 0


def test_a_few_steps_tell_nothing() -> None:
    """Without enough steps there is no model, and none is made up."""
    assert session(NUM_SKIPPED + 3).sums().fit() is None
    assert StepSums().fit() is None


def test_memory_is_bounded_and_late_steps_are_seen() -> None:
    """A long session keeps a sample from all of it."""
    timer = session(20_000)
    assert timer.sums().num_steps < 4096
    slower = session(20_000, seed=1, true=tuple(2 * value for value in TRUE))
    assert whole(slower.sums().fit()) == pytest.approx(2 * EXPECTED, rel=0.05)  # type: ignore[arg-type]


def test_loads_are_added_up_only_for_steps_that_are_kept() -> None:
    """When a session is long, most of its steps cost nothing but a count."""
    timer, asked = StepTimer(), []
    for number in range(30_000):
        timer.add(0.1, lambda number=number: asked.append(number) or StepLoad(0, 1, 1))  # type: ignore[misc,func-returns-value]
    assert sum(number > 20_000 for number in asked) < 2_000


def test_sessions_add_up(tmp_path: Path) -> None:
    """The file of a model and device holds what both sessions measured."""
    for seed in range(2):
        add_speed(tmp_path, IDENTITY, session(1000, seed=seed).sums())
    identity, time = read_speed(tmp_path, "model") or pytest.fail("nothing was kept")
    assert identity == IDENTITY
    assert time.num_steps == 2 * (1000 - NUM_SKIPPED)
    assert whole(time) == pytest.approx(EXPECTED, rel=0.05)


def test_other_software_begins_anew(tmp_path: Path) -> None:
    """Steps of an older version are not mixed with those of the new one; another model or device is not meant."""
    add_speed(tmp_path, IDENTITY, session(1000, true=tuple(9 * value for value in TRUE)).sums())
    add_speed(tmp_path, Identity("model", "bfloat16", "vllm 2", "2 x CPU"), session(500).sums())
    _, time = read_speed(tmp_path, "model", "2 x CPU") or pytest.fail("nothing was kept")
    assert whole(time) == pytest.approx(EXPECTED, rel=0.05)
    assert read_speed(tmp_path, "another") is None
    assert read_speed(tmp_path, "model", "a GPU") is None
    assert read_speed(tmp_path / "nowhere", "model") is None


def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    """It is an estimate: what cannot be read is no estimate, and the next session writes it again."""
    add_speed(tmp_path, IDENTITY, session(500).sums())
    for content in ("{", "[]", '{"identity": {}, "sums": {}}'):
        (tmp_path / IDENTITY.file_name).write_text(content)
        assert read_speed(tmp_path, "model") is None
        add_speed(tmp_path, IDENTITY, session(500).sums())
        assert read_speed(tmp_path, "model") is not None
