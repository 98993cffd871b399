"""The seams: what the rooms ask of the parts that have more than one make (real device, fake, another library)."""

from collections.abc import Sequence
from typing import Protocol

from tasks.core.plan import PlannedSequence
from tasks.core.request import SamplingParams, StepOutput


class Engine(Protocol):
    """Prompts in, tokens out, one step at a time. Nothing runs between two calls of `step`."""

    @property
    def num_unfinished(self) -> int:
        """How many sequences have been added and not yet finished or aborted."""
        ...

    def continues_exactly(self, sampling: SamplingParams) -> bool:
        """Whether a sequence can go on from saved tokens as if nothing had happened; else it is generated from its start."""
        ...

    def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
        """Admit a sequence that already has `saved_token_ids` of its answer, of a kind that `continues_exactly`.

        Raises RequestError when this one sequence cannot be run; the others are not touched.
        """
        ...

    def step(self) -> list[StepOutput]:
        """Run one engine step; the new tokens of each sequence that got any."""
        ...

    def abort(self, keys: Sequence[int]) -> None:
        """Put sequences down; they give no further output."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


class Tokenizer(Protocol):
    """Text to token ids of one model and back."""

    @property
    def max_model_len(self) -> int:
        """The most tokens, prompt and answer together, that the model can hold."""
        ...

    @property
    def max_token_bytes(self) -> int:
        """The most UTF-8 bytes that one token stands for: a bound on length without tokenising."""
        ...

    @property
    def vocab_size(self) -> int:
        """How many token ids there are, special ones among them: they count from 0."""
        ...

    def render(self, messages: list[dict[str, object]], tools: list[dict[str, object]] | None = None) -> str:
        """A chat through the model's chat template, ready for the assistant's turn, with the definitions of its tools.

        Raises ValueError with the reason, which may be that the template has no place for tools.
        """
        ...

    def render_turns(self, roles: tuple[str, ...], contents: Sequence[str]) -> str:
        """The same for a chat whose turns have a role and a text and nothing else; fast for roles that came before."""
        ...

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        """Token ids of each prompt; a rendered one already holds its special tokens."""
        ...

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of these ids, special tokens left out; the beginning or the end may lie inside a character (U+FFFD)."""
        ...

    def decode(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each answer, special tokens left out, always from the whole list of ids."""
        ...


class Room(Protocol):
    """Whether the engine's memory has room for one more sequence; told of all that it is filled with."""

    def fits(self, sequence: PlannedSequence, num_saved: int) -> bool:
        """Whether the sequence, with so many saved tokens, may join. Always when nothing is in flight."""
        ...

    def begin(self, sequence: PlannedSequence, num_saved: int) -> None:
        """It has gone to the engine."""
        ...

    def note(self, outputs: Sequence[StepOutput]) -> None:
        """What a step gave."""
        ...

    def expected_tokens(self, sequence: PlannedSequence) -> float:
        """How long its answer gets, in the mean."""
        ...


class Journal(Protocol):
    """Where tokens are put before anyone is told of them. Raises OSError when it cannot write: the run stops."""

    def begin(self, key: int, saved_token_ids: Sequence[int] = ()) -> None:
        """A sequence goes to the engine with these tokens of its answer given; what it had beyond them is void."""
        ...

    def append(self, outputs: Sequence[StepOutput]) -> None:
        """Record one engine step."""
        ...

    def fail(self, key: int, reason: str) -> None:
        """Record that a sequence was given up, and why."""
        ...
