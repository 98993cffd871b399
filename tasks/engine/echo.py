"""EchoEngine: deterministic answers without a model or a GPU, for tests, examples and dry runs.

Each next token is a hash of the prompt and the tokens so far, so a sequence that goes on from saved tokens ends like an
undisturbed one: it keeps the promises of the real engine and passes the same suite. Of the sampling parameters it honours
those that say when an answer ends and what is reported of it; it has no logits to penalise and no grammar.
"""

import hashlib
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.core.counters import EngineCounters
from tasks.core.plan import PlannedSequence
from tasks.core.request import FinishReason, SamplingParams, StepOutput, TokenLogprobs
from tasks.engine.stops import StopStrings
from tasks.engine.tokenizer import ByteTokenizer

END = 0
_MIN_TOKENS = 4
_ALPHABET = b"etaoin shrdlu, cmfwyp. vbgkjqxz "


@dataclass(slots=True)
class _Running:
    sequence: PlannedSequence
    token_ids: "array[int]"
    stops: StopStrings | None


class EchoEngine:
    """Runs up to `max_num_seqs` sequences a step, first come, first served; `step_s` is how long a step lasts."""

    def __init__(self, max_num_seqs: int = 64, step_s: float = 0.0) -> None:
        self._max_num_seqs = max_num_seqs
        self._step_s = step_s
        self._running: dict[int, _Running] = {}
        self._steps = 0

    @property
    def num_unfinished(self) -> int:
        return len(self._running)

    def counters(self) -> EngineCounters:
        """What telemetry has of an engine, but for its life and the tokens generated; there is no cache."""
        running = min(len(self._running), self._max_num_seqs)
        return EngineCounters(steps=self._steps, running=running, waiting=len(self._running) - running)

    def continues_exactly(self, sampling: SamplingParams) -> bool:
        return True

    def add_request(self, sequence: PlannedSequence, saved_token_ids: Sequence[int]) -> None:
        sampling, stops = sequence.sampling, None
        if sampling.stop:
            stops = StopStrings(sampling.stop, sampling.min_tokens, ByteTokenizer().text)
            stops.feed(saved_token_ids)
        self._running[sequence.key] = _Running(sequence, array("i", saved_token_ids), stops)

    def step(self) -> list[StepOutput]:
        self._steps += 1
        if self._step_s:
            time.sleep(self._step_s)
        outputs = [_advance(running) for running in list(self._running.values())[: self._max_num_seqs]]
        for output in outputs:
            if output.finish_reason is not None:
                del self._running[output.key]
        return outputs

    def abort(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._running.pop(key, None)

    def close(self) -> None:
        self._running.clear()


def _advance(running: _Running) -> StepOutput:
    sequence, sampling = running.sequence, running.sequence.sampling
    digest = hashlib.blake2b(array("i", sequence.prompt_token_ids).tobytes() + running.token_ids.tobytes(), digest_size=4)
    token = _token(digest.digest(), len(running.token_ids), sampling)
    running.token_ids.append(token)
    logprobs = None if sampling.logprobs is None else [_logprobs(digest.digest(), token, sampling.logprobs)]
    return StepOutput(sequence.key, (token,), _reason(running, token), logprobs=logprobs)


def _token(digest: bytes, num_tokens: int, sampling: SamplingParams) -> int:
    may_end = num_tokens >= max(_MIN_TOKENS, sampling.min_tokens) and not sampling.ignore_eos
    return END if may_end and digest[0] < 8 else _ALPHABET[digest[1] % len(_ALPHABET)] + 1


def _reason(running: _Running, token: int) -> FinishReason | None:
    sampling, num_tokens = running.sequence.sampling, len(running.token_ids)
    if token == END or (token in sampling.stop_token_ids and num_tokens > sampling.min_tokens):
        return FinishReason.STOP
    if running.stops is not None and running.stops.feed((token,)):
        return FinishReason.STOP
    return FinishReason.LENGTH if num_tokens >= sampling.max_tokens else None


def _logprobs(digest: bytes, token: int, num_top: int) -> TokenLogprobs:
    """Numbers that look like log-probabilities and depend on the token and what is before it."""
    best = -digest[2] / 64
    return TokenLogprobs(best, tuple(((token + i) % 257, best - i) for i in range(num_top)))
