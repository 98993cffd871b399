"""The parameters that are not honoured: which change no answer and are passed over, and which are refused by name.

Every field of the OpenAI API and of vLLM's extensions that is no field of the models in this room is in one of the two; a
test compares them with the vLLM that is installed. A name that nobody knows is refused as well: it may be a typo.
"""

from collections.abc import Mapping
from typing import Any

IGNORED = frozenset(
    (
        *("user", "metadata", "store", "service_tier", "stream", "stream_options", "stream_interval", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_retention", "cache_salt", "request_id", "session_id", "priority"),
        *(
            "parallel_tool_calls",
            "max_tool_calls",
            "media_io_kwargs",
            "mm_processor_kwargs",
            "mm_payload",
            "return_mm_kwargs",
        ),
        *("return_token_ids", "return_token_offsets", "return_prompt_text", "routed_experts_prompt_start"),
        *("return_mm_kwargs", "enable_response_messages", "cache_control", "inference_geo"),
    )
)
"""They say how the answer is to be delivered, kept, billed or cached, or are about images. Tokens are in the results."""

_OUR_TEMPLATE = "the model's chat template is used as it is"
_OUR_START = "the assistant's turn always begins anew"
_NO_BEAMS = "there is no search over beams; ask for several answers with 'n'"
_NO_CONTENT = "only the text of the conversation is read"
_NO_REASONING = "what a model thinks is part of its answer"
_CUT = "ask for --truncate-prompt"

REFUSED: Mapping[str, str] = {
    "add_generation_prompt": _OUR_START,
    "add_special_tokens": _OUR_TEMPLATE,
    "allowed_token_ids": "use 'logit_bias' or 'structured_outputs'",
    "audio": _NO_CONTENT,
    "best_of": _NO_BEAMS,
    "chat_template": _OUR_TEMPLATE,
    "chat_template_kwargs": _OUR_TEMPLATE,
    "continue_final_message": _OUR_START,
    "documents": "put them into a message",
    "ec_transfer_params": "",
    "echo": "",
    "function_call": "use 'tools' and 'tool_choice'",
    "functions": "use 'tools'",
    "include_reasoning": _NO_REASONING,
    "include_stop_str_in_output": "answers end before the stop string",
    "kv_transfer_params": "",
    "length_penalty": _NO_BEAMS,
    "logprob_token_ids": "use 'top_logprobs'",
    "modalities": _NO_CONTENT,
    "prediction": "",
    "prompt_embeds": "send text",
    "prompt_logprobs": "",
    "reasoning_effort": _NO_REASONING,
    "repetition_detection": "use 'repetition_penalty'",
    "return_tokens_as_token_ids": "token ids are in the results beside the text",
    "skip_special_tokens": "special tokens are left out of the text; their ids are in the results",
    "spaces_between_special_tokens": "special tokens are left out of the text; their ids are in the results",
    "suffix": "",
    "thinking_token_budget": _NO_REASONING,
    "truncate_prompt_tokens": _CUT,
    "truncation_side": _CUT,
    "use_beam_search": _NO_BEAMS,
    "verbosity": "",
    "vllm_xargs": "",
    "watermarking": "",
    "web_search_options": "there is no tool to search with",
    # of /v1/responses
    "background": "every row is answered in the background",
    "conversation": "send the earlier turns in 'input'",
    "previous_input_messages": "send the earlier turns in 'input'",
    "previous_response_id": "send the earlier turns in 'input'",
    "prompt": "send the text itself",
    "reasoning": _NO_REASONING,
    "truncation": _CUT,
    # of message batches
    "container": "there are no tools on the server",
    "context_management": "send the turns that are to be read",
    "mcp_servers": "there are no tools on the server",
    "thinking": _NO_REASONING,
    "fallback_model": "one model answers all rows of a run",
}
"""The parameters that are known and refused, each with what to do instead where there is something."""

AT_REST: Mapping[str, Any] = {
    "add_generation_prompt": True,
    "best_of": 1,
    "include_reasoning": True,
    "length_penalty": 1,
    "modalities": ["text"],
    "prompt_logprobs": None,
    "reasoning_effort": None,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "thinking": {"type": "disabled"},
    "thinking_token_budget": None,
    "truncate_prompt_tokens": None,
    "truncation": "disabled",
    "verbosity": "medium",
}
"""Of those the ones with a value, besides null, that asks for nothing; the others' are the usual ones."""

_NEUTRAL: tuple[Any, ...] = (None, False, [], {}, "none", {"type": "text"})


def unheard(name: str, value: Any, at_rest: Mapping[str, Any] = AT_REST) -> str | None:
    """Why a parameter outside the models costs its row; None where nothing is lost by not hearing it."""
    if name in IGNORED or value is None or _is_at_rest(name, value, at_rest):
        return None
    hint = REFUSED.get(name)
    return f"the parameter {name!r} is not supported" + (f": {hint}" if hint else "")


def _is_at_rest(name: str, value: Any, at_rest: Mapping[str, Any]) -> bool:
    return bool(value == at_rest[name]) if name in at_rest else value in _NEUTRAL
