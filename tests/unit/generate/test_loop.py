"""The loop and what it is given to do: nothing lost, nothing twice, stopped between steps."""

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from tasks.core.errors import RequestError
from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, Progress
from tasks.engine.echo import EchoEngine
from tasks.generate.loop import Tally, generate
from tasks.generate.probe import answers_again
from tasks.generate.resume import Work, remaining
from tasks.journal.replay import replay
from tasks.journal.segments import segments
from tasks.journal.writer import TokenJournal

RUN = bytes(32)
MakeSequence = Callable[..., PlannedSequence]


def run(
    folder: Path, plan: list[PlannedSequence], engine: EchoEngine, *, max_num_seqs: int = 4, stop_after: int = 10**9
) -> Tally:
    """One process's life: replay, run what is left, journal."""
    known = replay(segments(folder), RUN)
    steps = 0

    def on_step(tally: Tally) -> None:
        nonlocal steps
        steps = tally.steps

    with TokenJournal(folder, 0, RUN) as journal:
        return generate(
            remaining(plan, known.progress, engine.continues_exactly),
            engine,
            journal,
            max_num_seqs=max_num_seqs,
            should_stop=lambda: steps >= stop_after,
            on_step=on_step,
        )


def answers(folder: Path) -> dict[int, list[int]]:
    known = replay(segments(folder), RUN)
    assert all(progress.is_final for progress in known.progress.values())
    return {key: list(progress.token_ids) for key, progress in known.progress.items()}


def test_everything_is_answered_within_the_limit(tmp_path: Path, make_sequence: MakeSequence) -> None:
    """All sequences end, with never more in flight than allowed, and the engine is refilled as soon as one ends."""
    plan = [make_sequence(f"s{i}", prompt=(i,), max_tokens=3 + i % 5) for i in range(20)]
    in_flight = []

    class Watched(EchoEngine):
        def step(self):  # type: ignore[no-untyped-def]
            in_flight.append(self.num_unfinished)
            return super().step()

    tally = run(tmp_path, plan, Watched(), max_num_seqs=4)
    assert tally.finished == 20
    assert max(in_flight) == 4
    assert all(n == 4 for n in in_flight[:-8])
    assert answers(tmp_path).keys() == {sequence.key for sequence in plan}


def test_what_is_allowed_changes_between_steps(tmp_path: Path, make_sequence: MakeSequence) -> None:
    """A lower limit lets those in flight end before others begin, none is a pause without a step, and all is answered."""
    plan = [make_sequence(f"s{i}", prompt=(i,), max_tokens=9) for i in range(12)]
    limits = iter([6] * 3 + [0] * 5 + [2] * 30)
    in_flight, pauses = [], []

    class Watched(EchoEngine):
        def step(self):  # type: ignore[no-untyped-def]
            in_flight.append(self.num_unfinished)
            return super().step()

    with TokenJournal(tmp_path, 0, RUN) as journal:
        tally = generate(
            remaining(plan, {}, lambda sampling: True),
            Watched(),
            journal,
            max_num_seqs=8,
            should_stop=lambda: False,
            on_step=lambda tally: None,
            allowed=lambda: next(limits, 2),
            pause=lambda: pauses.append(len(in_flight)),
        )
    assert tally.finished == 12
    assert pauses == [3] * 5
    assert in_flight[:3] == [6] * 3
    assert max(in_flight[12:]) == 2
    assert len(answers(tmp_path)) == 12


def test_a_pause_ends_when_asked_to_stop(tmp_path: Path, make_sequence: MakeSequence) -> None:
    """While nothing may run, a request to stop is heard."""
    asked: list[int] = []
    with TokenJournal(tmp_path, 0, RUN) as journal:
        tally = generate(
            remaining([make_sequence("a")], {}, lambda sampling: True),
            EchoEngine(),
            journal,
            max_num_seqs=8,
            should_stop=lambda: len(asked) > 3,
            on_step=lambda tally: None,
            allowed=lambda: 0,
            pause=lambda: asked.append(1),
        )
    assert (tally.steps, len(asked)) == (0, 4)


def test_stopped_after_any_step_and_resumed_gives_the_same_answers(tmp_path: Path, make_sequence: MakeSequence) -> None:
    """Put down after each number of steps and started again, the answers equal an undisturbed run's."""
    plan = [make_sequence(f"s{i}", prompt=(i, 1), max_tokens=12) for i in range(6)]
    run(tmp_path / "undisturbed", plan, EchoEngine())
    expected = answers(tmp_path / "undisturbed")
    for stop_after in range(1, 12):
        folder = tmp_path / str(stop_after)
        lives = 0
        while run(folder, plan, EchoEngine(), stop_after=stop_after).steps >= stop_after:
            lives += 1
        assert lives >= 2
        assert answers(folder) == expected


def test_what_was_in_flight_is_in_flight_again(tmp_path: Path, make_sequence: MakeSequence) -> None:
    """A life that begins with saved tokens admits the same sequences first as the one before."""
    plan, admitted = [make_sequence(f"s{i}", prompt=(i, 1), max_tokens=12) for i in range(10)], list[list[int]]()

    class Watched(EchoEngine):
        def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
            admitted[-1].append(sequence.key)
            super().add_request(sequence, saved_token_ids)

    for _ in range(2):
        admitted.append([])
        run(tmp_path, plan, Watched(), max_num_seqs=3, stop_after=2)
    assert admitted[0][:3] == admitted[1][:3] == [sequence.key for sequence in plan[:3]]


def test_a_refused_sequence_is_a_failure_and_the_next_takes_its_place(tmp_path: Path, make_sequence: MakeSequence) -> None:
    """An engine that refuses one sequence runs all others; the refusal is journaled with its reason."""

    class Picky(EchoEngine):
        def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
            if sequence.request_id == "bad":
                raise RequestError("id out of vocabulary")
            super().add_request(sequence, saved_token_ids)

    plan = [make_sequence(name) for name in ("a", "bad", "b")]
    tally = run(tmp_path, plan, Picky(), max_num_seqs=1)
    known = replay(segments(tmp_path), RUN).progress
    assert (tally.finished, tally.failed) == (2, 1)
    assert known[plan[1].key].error == "id out of vocabulary"


def test_remaining_skips_what_ended_and_keeps_tokens(make_sequence: MakeSequence) -> None:
    """Ended sequences are left out; others go on from their tokens, or from the start where that would not be exact."""
    names = ("new", "done", "failed", "part", "with_stop")
    sampling: dict[str, dict[str, object]] = {"with_stop": {"stop": ("x",)}}
    plan = {name: make_sequence(name, **sampling.get(name, {})) for name in names}
    saved = array("i", [1, 2])
    progress = {plan[name].key: Progress(saved) for name in ("part", "with_stop")}
    progress[plan["done"].key] = Progress(saved, finish_reason=FinishReason.STOP)
    progress[plan["failed"].key] = Progress(saved, error="gone")
    assert list(remaining(plan.values(), progress, lambda sampling: not sampling.stop)) == [
        Work(plan["new"], ()),
        Work(plan["part"], saved),
        Work(plan["with_stop"], ()),
    ]


def test_the_probe_asks_for_one_token_of_what_was_answered_before(make_sequence: MakeSequence) -> None:
    """It passes over what failed or has not ended, leaves the engine empty, and without an answered one does nothing."""
    plan = [make_sequence(name) for name in ("failed", "part", "done")]
    progress = {plan[0].key: Progress(error="gone"), plan[1].key: Progress(array("i", [1]))}
    engine = EchoEngine()
    assert answers_again(plan, progress, engine, should_stop=lambda: False).generated_tokens == 0
    progress[plan[2].key] = Progress(array("i", [1]), finish_reason=FinishReason.STOP)
    assert answers_again(plan, progress, engine, should_stop=lambda: False).generated_tokens == 1
    assert engine.num_unfinished == 0
