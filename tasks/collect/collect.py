"""Plan and journal to results and failures; proves that nothing was lost.

Every request ends with each of its choices in exactly one of the two tables, or collect raises. The tables appear
whole or not at all, and collecting twice gives the same bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tasks.collect.answer import answers
from tasks.core.errors import DamageError
from tasks.core.protocols import Tokenizer
from tasks.core.request import FinishReason, Progress, SamplingParams, TokenLogprobs
from tasks.storage.layout import Run
from tasks.storage.parquet import FAILURES, RESULTS, TableWriter, replacing_table

_CHUNK = 1024
COMPLETED, FAILED = "completed", "failed"

Row = Mapping[str, Any]


@dataclass(slots=True)
class Collected:
    """Counts of requests, and tokens summed over the results; `engine_` sums leave duplicates out. Near-duplicates are
    among the duplicates."""

    requests: int = 0
    results: int = 0
    failures: int = 0
    duplicates: int = 0
    near_duplicates: int = 0
    cut_at_max_tokens: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    engine_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Choice:
    """One choice of one request, with the plan's row and the journal's word on it."""

    request: Row
    planned: Row
    progress: Progress
    duplicate_of: str | None
    similarity: float | None


def collect(
    requests: Iterable[Row],
    planned: Mapping[str, Sequence[Row]],
    duplicate_of: Mapping[str, str],
    similarity: Mapping[str, float],
    progress: Mapping[int, Progress],
    tokenizer: Tokenizer,
    run: Run,
    model: str,
) -> Collected:
    """Write both tables. `requests` are rows of the requests table; `planned` are the plan's rows by request id;
    `similarity` has those duplicates that are no exact ones.

    Raises DamageError when a request has no plan, or a planned sequence no end.
    """
    collected = Collected()
    with ExitStack() as stack:
        results = stack.enter_context(replacing_table(run.results, RESULTS))
        failures = stack.enter_context(replacing_table(run.failures, FAILURES))
        choices = _choices(requests, planned, duplicate_of, similarity, progress, collected)
        while chunk := list(islice(choices, _CHUNK)):
            _write_failures([choice for choice in chunk if choice.progress.error], failures, run.run_id, model)
            _write_results([c for c in chunk if not c.progress.error], results, tokenizer, run.run_id, model, collected)
        if collected.requests != collected.results + collected.failures:
            raise DamageError(f"{run.run_id}: requests and outcomes do not add up: {collected}")
    return collected


def _choices(
    requests: Iterable[Row],
    planned: Mapping[str, Sequence[Row]],
    duplicate_of: Mapping[str, str],
    similarity: Mapping[str, float],
    progress: Mapping[int, Progress],
    collected: Collected,
) -> Iterator[_Choice]:
    for request in requests:
        original = duplicate_of.get(request["request_id"])
        rows = planned.get(original or request["request_id"], ())
        near = similarity.get(request["request_id"])
        choices = [_Choice(request, row, _ended(progress, row), original, near) for row in rows]
        if len(choices) != request["n"]:
            raise DamageError(f"{request['request_id']}: {len(choices)} planned choices, and {request['n']} were asked for")
        collected.requests += 1
        collected.duplicates += original is not None
        collected.near_duplicates += near is not None
        if any(choice.progress.error for choice in choices):
            collected.failures += 1
        else:
            collected.results += 1
        yield from choices


def _ended(progress: Mapping[int, Progress], row: Row) -> Progress:
    known = progress.get(row["key"])
    if known is None or not known.is_final:
        raise DamageError(f"{row['request_id']} choice {row['choice_index']} has no end in the journal; run again to resume")
    return known


def _identity(choice: _Choice, run_id: str, model: str, status: str) -> dict[str, Any]:
    request = choice.request
    return {
        "run_id": run_id,
        "request_id": request["request_id"],
        "custom_id": request["custom_id"],
        "source": request["source"],
        "model": model,
        "choice_index": choice.planned["choice_index"],
        "status": status,
    }


def _write_failures(choices: Sequence[_Choice], table: TableWriter, run_id: str, model: str) -> None:
    for choice in choices:
        place = {"error": choice.progress.error, "file": choice.request["file"], "line": choice.request["line"]}
        table.append(_identity(choice, run_id, model, FAILED) | place)


def _write_results(
    choices: Sequence[_Choice], table: TableWriter, tokenizer: Tokenizer, run_id: str, model: str, collected: Collected
) -> None:
    sampling = [SamplingParams.from_json(choice.planned["sampling"]) for choice in choices]
    spoken = answers([choice.progress for choice in choices], sampling, tokenizer)
    for choice, answer in zip(choices, spoken, strict=True):
        known, is_copy = choice.progress, choice.duplicate_of is not None
        row = _identity(choice, run_id, model, COMPLETED) | {
            "finish_reason": known.finish_reason,
            "stop_reason": answer.stop_reason,
            "prompt_tokens": choice.planned["prompt_tokens"],
            "output_tokens": len(known.token_ids),
            "cached_tokens": 0 if is_copy else known.cached_tokens,
            "output_text": answer.text,
            "is_valid_json": answer.is_valid_json,
            "output_token_ids": known.token_ids,
            "logprobs": [at.logprob for at in known.logprobs] or None,
            "top_logprobs": [_alternatives(at) for at in known.logprobs] or None,
            "duplicate_of": choice.duplicate_of,
            "similarity": choice.similarity,
            "batch_id": choice.planned["batch_id"],
            "bucket": choice.planned["bucket"],
            "file": choice.request["file"],
            "line": choice.request["line"],
        }
        table.append(row)
        collected.cut_at_max_tokens += known.finish_reason is FinishReason.LENGTH
        collected.prompt_tokens += row["prompt_tokens"]
        collected.engine_prompt_tokens += 0 if is_copy else row["prompt_tokens"]
        collected.output_tokens += row["output_tokens"]
        collected.cached_tokens += row["cached_tokens"]


def _alternatives(at: TokenLogprobs) -> list[dict[str, float]]:
    return [{"token_id": token_id, "logprob": logprob} for token_id, logprob in at.top]
