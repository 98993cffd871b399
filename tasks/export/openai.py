"""One request's outcome to its line of an OpenAI batch output file or error file.

An answered request is a line of the output file, with all its choices in one chat completion or text completion. Any
other is a line of the error file: a rejected row like a request that the API refuses (status 400), a failed request, of
which not even one choice may be missing, with `error`. Ids are made of the run and the request, so they never change.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import groupby
from typing import Any

from tasks.core.errors import DamageError
from tasks.core.manifest import Manifest
from tasks.export.columns import Row
from tasks.export.logprobs import TokenText, chat_logprobs, text_logprobs

SELECTED = (
    *("source", "file", "line", "request_id", "custom_id", "model", "choice_index", "status", "finish_reason", "error"),
    *("reason", "output_text", "prompt_tokens", "output_tokens", "cached_tokens"),
    *("output_token_ids", "logprobs", "top_logprobs"),
)


def by_request(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """The choices of each input row, from rows in the input's order."""
    for _, choices in groupby(rows, key=lambda row: (row["source"], row["file"], row["line"])):
        yield list(choices)


@dataclass(frozen=True, slots=True)
class BatchFile:
    """Makes the lines of one run. `token_text` gives a token's text; it is asked only where log-probabilities are."""

    run_id: str
    fingerprint: str
    created: int
    token_text: Callable[[int], TokenText]

    @staticmethod
    def of(manifest: Manifest, token_text: Callable[[int], TokenText]) -> "BatchFile":
        """All answers are dated at the run's start, the one time that collecting again does not change."""
        created = int(datetime.fromisoformat(manifest.started_at).timestamp())
        return BatchFile(manifest.run_id, manifest.fingerprint, created, token_text)

    def line(self, choices: Sequence[Row]) -> tuple[dict[str, Any], bool]:
        """The line of these choices of one request, and whether it belongs into the output file."""
        first = choices[0]
        name = first["request_id"] or f"{first['source']}\0{first['file']}\0{first['line']}"
        line: dict[str, Any] = {"id": f"batch_req_{self._id('line', name)}", "custom_id": first["custom_id"]}
        if first["status"] == "rejected":
            response = {"status_code": 400, "request_id": self._id("http", name), "body": _refusal(first)}
            return line | {"response": response, "error": None}, False
        failed = next((choice for choice in choices if choice["status"] == "failed"), None)
        if failed is not None:
            which = f"choice {failed['choice_index']}: " if first["n"] > 1 else ""
            return line | {"response": None, "error": {"code": "failed", "message": f"{which}{failed['error']}"}}, False
        if [choice["choice_index"] for choice in choices] != list(range(first["n"])):
            raise DamageError(f"{name}: {len(choices)} choices in the results, and {first['n']} were asked for")
        body = self._body(choices, name)
        return line | {
            "response": {"status_code": 200, "request_id": self._id("http", name), "body": body},
            "error": None,
        }, True

    def _body(self, choices: Sequence[Row], name: str) -> dict[str, Any]:
        first = choices[0]
        is_chat = not first["is_completion"]
        return {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{self._id('body', name)}",
            "object": "chat.completion" if is_chat else "text_completion",
            "created": self.created,
            "model": first["model"],
            "choices": [self._chat_choice(choice) if is_chat else self._text_choice(choice) for choice in choices],
            "usage": _usage(choices),
            "system_fingerprint": f"fp_{self.fingerprint[:12]}",
        }

    def _chat_choice(self, choice: Row) -> dict[str, Any]:
        return {
            "index": choice["choice_index"],
            "message": {"role": "assistant", "content": choice["output_text"], "refusal": None},
            "logprobs": chat_logprobs(choice, self.token_text),
            "finish_reason": choice["finish_reason"],
        }

    def _text_choice(self, choice: Row) -> dict[str, Any]:
        return {
            "index": choice["choice_index"],
            "text": choice["output_text"],
            "logprobs": text_logprobs(choice, self.token_text),
            "finish_reason": choice["finish_reason"],
        }

    def _id(self, kind: str, name: str) -> str:
        return blake2b(f"{self.run_id}\0{kind}\0{name}".encode(), digest_size=16).hexdigest()


def _refusal(reject: Row) -> dict[str, Any]:
    message = f"{reject['file']} line {reject['line']}: {reject['error']}"
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": reject["reason"]}}


def _usage(choices: Sequence[Row]) -> dict[str, Any]:
    """The prompt counts once for all choices, and as cached what none of them had to compute."""
    prompt, completion = choices[0]["prompt_tokens"], sum(choice["output_tokens"] for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": min(choice["cached_tokens"] for choice in choices)},
    }
