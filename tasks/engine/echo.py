"""EchoEngine: deterministic answers without a model or a GPU, for tests, examples and dry runs.

Each next token is a hash of the prompt and the tokens so far, so a sequence that goes on from saved tokens ends like an
undisturbed one: it keeps the promises of the real engine and passes the same suite.
"""

import hashlib
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, SamplingParams, StepOutput

END = 0
_MIN_TOKENS = 4
_ALPHABET = b"etaoin shrdlu, cmfwyp. vbgkjqxz "


@dataclass(slots=True)
class _Running:
    sequence: PlannedSequence
    token_ids: "array[int]" = field(default_factory=lambda: array("i"))


class EchoEngine:
    """Runs up to `max_num_seqs` sequences a step, first come, first served; `step_s` is how long a step lasts."""

    def __init__(self, max_num_seqs: int = 64, step_s: float = 0.0) -> None:
        self._max_num_seqs = max_num_seqs
        self._step_s = step_s
        self._running: dict[int, _Running] = {}

    @property
    def num_unfinished(self) -> int:
        return len(self._running)

    def continues_exactly(self, sampling: SamplingParams) -> bool:
        return True

    def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
        self._running[sequence.key] = _Running(sequence, array("i", saved_token_ids))

    def step(self) -> list[StepOutput]:
        if self._step_s:
            time.sleep(self._step_s)
        outputs = [self._advance(running) for running in list(self._running.values())[: self._max_num_seqs]]
        for output in outputs:
            if output.finish_reason is not None:
                del self._running[output.key]
        return outputs

    def abort(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._running.pop(key, None)

    def close(self) -> None:
        self._running.clear()

    def _advance(self, running: _Running) -> StepOutput:
        token = _next_token(running.sequence.prompt_token_ids, running.token_ids)
        running.token_ids.append(token)
        reason = None
        if token == END:
            reason = FinishReason.STOP
        elif len(running.token_ids) >= running.sequence.sampling.max_tokens:
            reason = FinishReason.LENGTH
        return StepOutput(running.sequence.key, (token,), reason)


def _next_token(prompt: Sequence[int], so_far: "array[int]") -> int:
    digest = hashlib.blake2b(array("i", prompt).tobytes() + so_far.tobytes(), digest_size=2).digest()
    if len(so_far) >= _MIN_TOKENS and digest[0] < 8:
        return END
    return _ALPHABET[digest[1] % len(_ALPHABET)] + 1
