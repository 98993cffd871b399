"""The hot loop: admit, step, journal, until nothing is left or somebody asks to stop.

How many may run is asked before each step: fewer than there are lets some end before others begin, none is a pause.

The engine is fed from our own queue, a sequence for each that ends, so that it never idles between work units; every
token is in the journal before it is counted.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tasks.core.errors import RequestError
from tasks.core.protocols import Engine, Journal, Room
from tasks.core.request import StepOutput
from tasks.generate.admission import Unbounded
from tasks.generate.ahead import Ahead
from tasks.generate.resume import Work


@dataclass(slots=True)
class Tally:
    """What this process has done so far. Tokens are output tokens, and `resumed` those found in the journal."""

    steps: int = 0
    generated_tokens: int = 0
    resumed_tokens: int = 0
    finished: int = 0
    failed: int = 0

    def count(self, outputs: list[StepOutput]) -> None:
        self.steps += 1
        self.generated_tokens += sum(len(output.token_ids) for output in outputs)
        self.failed += sum(output.error is not None for output in outputs)
        self.finished += sum(output.finish_reason is not None for output in outputs)


def generate(
    work: Iterable[Work],
    engine: Engine,
    journal: Journal,
    *,
    max_num_seqs: int,
    should_stop: Callable[[], bool],
    on_step: Callable[[Tally], None],
    room: Room | None = None,
    allowed: Callable[[], int] | None = None,
    pause: Callable[[], None] = lambda: None,
) -> Tally:
    """Run all work, at most `max_num_seqs` at once and no more than there is `room` for. When asked to stop it returns after
    the step in flight. `allowed` says how many may run at this moment; at 0 no step is made, and `pause` waits a little."""
    tally, room = Tally(), room or Unbounded()
    waiting = Ahead(work, lambda work: room.expected_tokens(work.sequence))
    while not should_stop():
        most = max_num_seqs if allowed is None else min(max_num_seqs, allowed())
        if most == 0 and (engine.num_unfinished or waiting.peek() is not None):
            pause()
            continue
        _admit(waiting, engine, journal, most, room, tally)
        if engine.num_unfinished == 0:
            break
        outputs = engine.step()
        journal.append([output for output in outputs if output.error is None])
        room.note(outputs)
        for output in outputs:
            if output.error is not None:
                journal.fail(output.key, output.error)
        tally.count(outputs)
        on_step(tally)
    return tally


def _admit(waiting: Ahead, engine: Engine, journal: Journal, max_num_seqs: int, room: Room, tally: Tally) -> None:
    """Fill the engine up from the queue; a sequence that it refuses is a failure, and the next one takes its place."""
    while engine.num_unfinished < max_num_seqs and (work := waiting.peek()) is not None:
        sequence, num_saved = work.sequence, len(work.saved_token_ids)
        if not room.fits(sequence, num_saved):
            break
        waiting.pop()
        try:
            engine.add_request(sequence, work.saved_token_ids)
        except RequestError as error:
            journal.fail(sequence.key, str(error))
            tally.failed += 1
            continue
        room.begin(sequence, num_saved)
        journal.begin(sequence.key, work.saved_token_ids)
        tally.resumed_tokens += num_saved
