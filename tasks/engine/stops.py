"""Stop strings: where in an answer one is complete. A function of the token ids alone, so that it does not matter where an
answer was interrupted; the engines ask it while they generate, and collect asks it again for the text.

The rules are vLLM's: a stop string counts when it ends behind the first `min_tokens` tokens, it may begin anywhere, the
answer keeps the tokens up to the one that completed it, and the text ends before it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

Decode = Callable[[Sequence[int]], str]
_UNFINISHED = "\ufffd"


class TextStream:
    """Token ids in, the text that they add out. Text is held back while it ends inside a character.

    A window of ids is decoded twice, once without the new ones, and the difference is what they add; so neither a space that
    a tokenizer drops in front nor a character in several tokens is lost, and no prompt is needed in front of the answer.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._num_read = 0

    def step(self, token_id: int) -> str:
        """The text that this token adds, and what was held back before it."""
        self._window.append(token_id)
        before, text = self._decode(self._window[: self._num_read]), self._decode(self._window)
        if len(text) <= len(before) or text.endswith(_UNFINISHED):
            return ""
        self._window, self._num_read = self._window[self._num_read :], len(self._window) - self._num_read
        return text[len(before) :]


class StopMatch(NamedTuple):
    """A stop string that ended an answer: after how many tokens, which one, and at which character the text ends."""

    num_tokens: int
    stop: str
    text_end: int


class StopStrings:
    """Watches one answer from its first token."""

    def __init__(self, stops: Sequence[str], min_tokens: int, decode: Decode) -> None:
        self._stops, self._min_tokens = stops, min_tokens
        self._stream = TextStream(decode)
        self._reach = max(map(len, stops)) - 1
        self._tail = ""
        self.num_tokens = self._num_chars = 0

    def feed(self, token_ids: Sequence[int]) -> StopMatch | None:
        """The first match that one of these tokens completes; nothing is to be fed after it."""
        for token_id in token_ids:
            text = self._stream.step(token_id)
            self.num_tokens += 1
            self._num_chars += len(text)
            seen = self._tail + text
            counts = text and self.num_tokens > self._min_tokens
            if counts and (found := first_stop(seen, self._stops, len(seen) - len(text))):
                place, stop = found
                return StopMatch(self.num_tokens, stop, self._num_chars - len(seen) + place)
            self._tail = seen[-self._reach :] if self._reach else ""
        return None


def first_stop(text: str, stops: Sequence[str], num_old: int = 0) -> tuple[int, str] | None:
    """Where the stop begins that ends first behind the first `num_old` characters, and which it is; of several that end
    there, the first of the list."""
    places = [(text.find(stop, max(num_old - len(stop) + 1, 0)), stop) for stop in stops]
    found = [(place + len(stop), place, stop) for place, stop in places if place >= 0]
    return min(found, key=lambda one: one[0])[1:] if found else None
