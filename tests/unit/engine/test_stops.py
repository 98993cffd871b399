"""Stop strings and the text they are looked for in: functions of the ids, wherever an answer was interrupted."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.engine.models import resolve_model
from tasks.engine.stops import StopMatch, StopStrings, TextStream
from tasks.engine.tokenizer import ByteTokenizer, ModelTokenizer

TEXT = "Say it: hello 🌶 naïve 日本 👩‍👩‍👧 مرحبا สวัสดี"
BYTES = ByteTokenizer()


def ids(text: str) -> list[int]:
    return BYTES.encode([text], rendered=[True])[0]


def test_stream_adds_up_to_the_text() -> None:
    """Token by token the pieces make the whole text, and none of them ends inside a character."""
    tokenizer = ModelTokenizer(resolve_model("SmolLM2-135M-Instruct").path, 512)
    for some in (BYTES, tokenizer):
        stream = TextStream(some.text)
        pieces = [stream.step(token) for token in some.encode([TEXT], rendered=[True])[0]]
        assert "".join(pieces) == TEXT
        assert not any("\ufffd" in piece for piece in pieces)


@given(text=st.text(max_size=40), cut=st.integers(0, 60), stop=st.text(min_size=1, max_size=3))
def test_interruption_does_not_matter(text: str, cut: int, stop: str) -> None:
    """Fed in two parts, cut anywhere, even inside a character, the match is that of one part."""
    tokens = ids(text)
    expected = StopStrings((stop,), 0, BYTES.text).feed(tokens)
    parts = StopStrings((stop,), 0, BYTES.text)
    assert (parts.feed(tokens[:cut]) or parts.feed(tokens[cut:])) == expected
    assert (expected is not None) == (stop in text)
    if expected is not None:
        assert text[: expected.text_end] + stop == BYTES.text(tokens[: expected.num_tokens])[: expected.text_end + len(stop)]


def test_first_to_be_complete_wins() -> None:
    """Of several stop strings the one that is complete first ends the answer; a tie goes to the first of the list."""
    assert StopStrings(("END", "N"), 0, BYTES.text).feed(ids("xEND")) == StopMatch(3, "N", 2)
    assert StopStrings(("ND", "END"), 0, BYTES.text).feed(ids("xEND")) == StopMatch(4, "ND", 2)


def test_min_tokens_hold_a_stop_string_off() -> None:
    """A stop string complete within the first min_tokens does not count; one that begins there and ends later does."""
    assert StopStrings(("ab",), 2, BYTES.text).feed(ids("ab ab")) == StopMatch(5, "ab", 3)
    assert StopStrings(("ab",), 1, BYTES.text).feed(ids("ab")) == StopMatch(2, "ab", 0)
