"""The probe: whether the engine still gives a token for a sequence that it has answered before. Nothing is journaled."""

from collections.abc import Callable, Iterable, Mapping

from tasks.core.plan import PlannedSequence
from tasks.core.protocols import Engine
from tasks.core.request import Progress
from tasks.generate.loop import Tally


def answers_again(
    plan: Iterable[PlannedSequence],
    progress: Mapping[int, Progress],
    engine: Engine,
    *,
    should_stop: Callable[[], bool],
) -> Tally:
    """What the probe has generated: no tokens when no sequence has been answered yet, or when asked to stop."""
    tally = Tally()
    answered = (s for s in plan if s.key in progress and progress[s.key].finish_reason is not None)
    if (sequence := next(answered, None)) is None:
        return tally
    engine.add_request(sequence, ())
    while engine.num_unfinished and not tally.generated_tokens and not should_stop():
        tally.count(engine.step())
    engine.abort([sequence.key])
    return tally
