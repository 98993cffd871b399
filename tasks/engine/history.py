"""What an answer's earlier tokens do to its next one: a logits processor for vLLM's V1 runner that counts saved tokens.

vLLM's presence and frequency penalties and its bad words of several tokens look at the tokens that it generated itself; of a
resumed answer these are only the last ones. Here the saved tokens, which stand at the end of the prompt, count as well. The
penalties are applied here to every request that has them, resumed or not, in vLLM's order and with its formulas
(`vllm/model_executor/layers/utils.py`, apply_penalties), so that the arithmetic does not depend on an interruption.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from tasks.engine.sampling import NUM_SAVED

PENALTIES = "nb_penalties"
"""Presence, frequency and repetition penalty."""


class _Row:
    """One request. `output` is vLLM's live list of the tokens it generated since the request was added."""

    def __init__(self, params: Any, prompt: Sequence[int], output: Sequence[int]) -> None:
        extra = params.extra_args
        num_prompt = len(prompt) - extra[NUM_SAVED]
        self.presence, self.frequency, self.repetition = extra.get(PENALTIES, (0.0, 0.0, 1.0))
        self.has_penalties = PENALTIES in extra
        self.bad_words = [words for words in params.bad_words_token_ids or () if len(words) > 1]
        self._prompt_ids = frozenset(prompt[:num_prompt]) if self.repetition != 1.0 else frozenset[int]()
        self._saved, self._output = list(prompt[num_prompt:]), output
        self._counts, self._num_counted = Counter(self._saved), 0

    def past(self, num_tokens: int) -> list[int]:
        """The last tokens of the answer, saved and new ones."""
        new = list(self._output[-num_tokens:])
        return [*self._saved[len(self._saved) + len(new) - num_tokens :], *new] if len(new) < num_tokens else new

    def counts(self) -> Counter[int]:
        """How often each token is in the answer."""
        self._counts.update(self._output[self._num_counted :])
        self._num_counted = len(self._output)
        return self._counts

    def seen(self) -> list[int]:
        """The tokens of the prompt and the answer."""
        return list(self._prompt_ids | self._counts.keys())


def _row(params: Any, prompt: Sequence[int] | None, output: Sequence[int]) -> _Row | None:
    extra = params.extra_args or {}
    is_straddled = extra.get(NUM_SAVED) and params.bad_words_token_ids
    return _Row(params, prompt or (), output) if PENALTIES in extra or is_straddled else None


class OutputHistory(LogitsProcessor):  # type: ignore[misc]  # vLLM has no types for mypy here
    """Runs before temperature and before vLLM's own penalties, which such requests leave neutral."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Row] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for index, row in self._rows.items():
            if row.has_penalties:
                penalize(logits[index], row)
            for *before, last in row.bad_words:
                if row.past(len(before)) == before:
                    logits[index, last] = float("-inf")
        return logits


def penalize(logits: torch.Tensor, row: _Row) -> None:
    """Apply one request's three penalties in place to its logits, of shape (vocabulary,)."""
    counts = row.counts()
    if row.repetition != 1.0:
        seen = torch.tensor(row.seen(), dtype=torch.long, device=logits.device)
        values = logits[seen]
        logits[seen] = torch.where(values > 0, values / row.repetition, values * row.repetition)
    if counts:
        ids = torch.tensor(list(counts), dtype=torch.long, device=logits.device)
        times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
        logits[ids] = logits[ids] - row.frequency * times - row.presence
