"""What an engine can say of its steps and its KV cache: what admission and the step-time model go by."""

from dataclasses import dataclass

PREFILL_STEPS = 1 / 512
"""What a prompt token costs, in steps of a full engine: between a 300th on the CPU and a 1,000th on large GPUs."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one engine step worked on.

    `prefill_tokens`: prompt tokens computed, those recomputed after a preemption among them. `decode_seqs`: sequences that
    had one token computed to get the next. `context_tokens`: summed over all tokens computed, how many each attends to.
    """

    prefill_tokens: int = 0
    decode_seqs: int = 0
    context_tokens: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.prefill_tokens or self.decode_seqs)


@dataclass(frozen=True, slots=True)
class KVShape:
    """A KV cache of equal blocks, `block_size` tokens each; `num_blocks` is how many sequences may hold at once."""

    num_blocks: int
    block_size: int

    @property
    def num_tokens(self) -> int:
        return self.num_blocks * self.block_size

    def blocks_of(self, num_tokens: int) -> int:
        """The blocks that so many tokens need."""
        return -(-num_tokens // self.block_size)
