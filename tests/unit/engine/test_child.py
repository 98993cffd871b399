"""What an engine child tells its supervisor."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tasks.core.errors import RequestError
from tasks.core.plan import PlannedSequence
from tasks.engine.child import Reporter, WatchedEngine
from tasks.engine.echo import EchoEngine

MakeSequence = Callable[..., PlannedSequence]


class Pipe:
    """A reporter and what it has written so far."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self.report = Reporter(self._write)

    def heard(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in os.read(self._read, 1 << 16).splitlines()]
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def pipe() -> Any:
    made = Pipe()
    yield made
    made.close()


def test_a_forced_report_does_not_hold_up_the_next_one(pipe: Pipe) -> None:
    """Five a second are counted without the forced ones."""
    for number in range(3):
        pipe.report({"n": number}, force=True)
    pipe.report({"n": 3})
    pipe.report({"n": 4})
    assert [report["n"] for report in pipe.heard()] == [0, 1, 2, 3]


def test_a_sequence_is_told_before_the_engine_has_it_and_when_it_ends(pipe: Pipe, make_sequence: MakeSequence) -> None:
    """Nothing is said of steps in which nothing changes; a refused or aborted sequence has ended too."""
    said_before: list[list[dict[str, Any]]] = []

    class Picky(EchoEngine):
        def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
            said_before.append(pipe.heard())
            if sequence.request_id == "bad":
                raise RequestError("no")
            super().add_request(sequence, saved_token_ids)

    engine = WatchedEngine(Picky(), pipe.report)
    good, bad, put_down = make_sequence("good", max_tokens=2), make_sequence("bad"), make_sequence("put down")
    engine.add_request(good, ())
    with pytest.raises(RequestError):
        engine.add_request(bad, ())
    engine.add_request(put_down, ())
    assert said_before[:2] == [[{"phase": "admitted", "keys": [sequence.key]}] for sequence in (good, bad)]
    assert said_before[2][0] == {"phase": "ended", "keys": [bad.key]}
    engine.step()
    assert pipe.heard() == []
    engine.step()
    assert pipe.heard() == [{"phase": "ended", "keys": [good.key]}]
    engine.abort([put_down.key])
    assert pipe.heard() == [{"phase": "ended", "keys": [put_down.key]}]
    assert engine.num_unfinished == 0
