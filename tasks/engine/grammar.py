"""The grammar of a structured answer, told of the tokens that were generated before an interruption.

vLLM's scheduler holds one matcher per request and has no public way to move it forward, so this reaches for the scheduler's
request (vLLM 0.32, in-process). Right after the request was added and before any step, the matcher is advanced by the saved
tokens; from there on vLLM continues it.
"""

import time
from collections.abc import Sequence
from typing import Any

_POLL_S = 0.001


def advance_grammar(engine: Any, internal_id: str, token_ids: Sequence[int]) -> bool:
    """Wait for a request's grammar to be compiled and feed it the saved tokens; False when it refuses them.

    A grammar that did not compile is left for vLLM to report with the next step.
    """
    scheduler = engine.engine_core.engine_core.scheduler
    request = scheduler.requests[internal_id]
    structured = request.structured_output_request
    while not structured.is_grammar_ready:
        time.sleep(_POLL_S)
    if isinstance(structured.grammar, Exception):
        return True
    return bool(scheduler.structured_output_manager.accept_tokens(request, list(token_ids)))
