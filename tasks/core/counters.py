"""What an engine counts: the numbers that stand beside a card's readings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """An engine at one moment. None is "it does not say".

    `life` is how often the engine was started in this session before: with each start the sums begin anew. Sums since then:
    engine steps; prompt tokens looked up in the prefix cache and found there; sequences that lost their KV; prompt tokens
    computed; tokens generated. Of this moment: sequences in the engine that run or wait, and `kv_use`, the share of one of
    the KV cache that is taken. `counted_s` is when they were heard of, by the monotonic clock.
    """

    life: int = 0
    counted_s: float | None = None
    steps: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_use: float | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    preemptions: int | None = None
    prefilled_tokens: int | None = None
    generated_tokens: int | None = None
