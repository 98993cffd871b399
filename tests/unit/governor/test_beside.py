"""The governor's process as its parent sees it: heard, told, started again, and given up."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.governor.beside import MAX_DEATHS, Beside

_SAY = "import json, sys; say = lambda **news: print(json.dumps(news), flush=True); "


def until(is_so: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < 20
        time.sleep(0.01)


def started(code: str, folder: Path, news: list[Any], broken: list[str]) -> Beside:
    return Beside([sys.executable, "-c", _SAY + code], folder / "governor.log", news.append, broken.append)


def test_it_is_told_and_heard_and_ends_with_the_block(tmp_path: Path) -> None:
    """What is told arrives, what it says is heard, and the end of its input is its end."""
    news: list[Any] = []
    broken: list[str] = []
    code = "[say(echo=json.loads(line)) for line in sys.stdin]; say(state='ended')"
    with started(code, tmp_path, news, broken) as beside:
        beside.tell({"steps": 7})
        until(lambda: news)
    until(lambda: len(news) == 2)
    assert news == [{"echo": {"steps": 7}}, {"state": "ended"}]
    assert not broken


def test_a_dead_one_is_started_again_and_at_last_given_up(tmp_path: Path) -> None:
    """Deaths are forgiven twice; after the third the parent is told, once, where the log is."""
    news: list[Any] = []
    broken: list[str] = []
    with started("say(state='Nominal'); sys.exit('a wound')", tmp_path, news, broken) as beside:
        until(lambda: broken)
        beside.tell({"steps": 1})
    assert len(news) == MAX_DEATHS
    assert len(broken) == 1
    assert "died 3 times" in broken[0]
    assert (tmp_path / "governor.log").read_text().count("a wound") == MAX_DEATHS


def test_one_that_does_not_read_blocks_nobody(tmp_path: Path) -> None:
    """Reports beyond what the pipe takes are lost, and telling returns at once."""
    code = "import time; say(state='Nominal'); time.sleep(30)"
    news: list[Any] = []
    beside = started(code, tmp_path, news, [])
    beside.__enter__()
    until(lambda: news)
    done = threading.Event()

    def tell_much() -> None:
        for number in range(2000):
            beside.tell({"number": number, "filler": "x" * 1000})
        done.set()

    threading.Thread(target=tell_much, daemon=True).start()
    assert done.wait(10)
    child = beside._child
    assert child is not None
    beside._is_ending = True
    child.kill()
    beside.close()


def test_what_is_no_news_is_logged(tmp_path: Path, caplog: Any) -> None:
    """A line that is not JSON goes to the log and harms nobody."""
    news: list[Any] = []
    with started("print('hello', flush=True); say(state='Nominal'); sys.stdin.read()", tmp_path, news, []):
        until(lambda: news)
    assert "hello" in caplog.text
