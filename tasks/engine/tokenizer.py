"""The model's own tokenizer, and ByteTokenizer, its stand-in for the echo engine.

Text is always decoded from the whole list of ids: a stream decoder primed inside a UTF-8 character would repeat the
prompt. The only importer of the tokenizer library, and only when a tokenizer is opened.
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from tasks.core.errors import ConfigError
from tasks.engine.frames import Frame, ObservedError, holes, may_have_frames
from tasks.engine.pieces import piece_encoder

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "model_max_length")
_MAX_FRAMES = 4096


class ModelTokenizer:
    """The tokenizer of a Hugging Face model folder. Raises ConfigError when the folder has none."""

    def __init__(self, folder: Path, max_model_len: int | None) -> None:
        from transformers import AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # its notes are about uses that are not ours

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"no usable tokenizer in {folder}: {str(error).splitlines()[0]}") from error
        self.max_model_len = context_length(folder, max_model_len)
        self.max_token_bytes = max(len(token.encode("utf-8")) for token in self._tokenizer.get_vocab())
        self.vocab_size = len(self._tokenizer)
        self._core: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        if self._core is not None:
            self._core.no_truncation()
            self._core.no_padding()
        self._pieces = None if self._core is None else piece_encoder(self._core)
        self._frames: dict[tuple[object, ...], Frame | None] = {}
        template = self._tokenizer.chat_template
        self._has_frames = isinstance(template, str) and may_have_frames(template)

    def render(self, messages: list[dict[str, object]], tools: list[dict[str, object]] | None = None) -> str:
        """The chat as the model reads it; a model without a chat template gets the bare contents, one a paragraph.

        What its template has no place for would be left out without a word, and is refused here.
        """
        turns = [_flat(message) for message in messages]
        template = self._tokenizer
        if template.chat_template is None:
            if tools or any(turn.get("tool_calls") for turn in turns):
                raise ValueError("the model has no chat template, and so no place for tools and their calls")
            return "\n\n".join(str(turn["content"]) for turn in turns)
        try:
            source = template.get_chat_template(tools=tools)
            if tools and not _reads_tools(source):
                raise ValueError("it has no place for 'tools'")
            if "tool_calls" not in source and any(turn.get("tool_calls") for turn in turns):
                raise ValueError("it has no place for the 'tool_calls' of an earlier turn")
            options = {"tools": tools, "tokenize": False, "add_generation_prompt": True}
            return cast("str", template.apply_chat_template(turns, **options))
        except Exception as error:  # a template is the model's own program and may raise anything
            raise ValueError(str(error)) from error

    def render_turns(self, roles: tuple[str, ...], contents: Sequence[str]) -> str:
        """The same for a chat whose turns are text alone: by a frame, where the template has one for these roles."""
        if roles not in self._frames:
            if len(self._frames) >= _MAX_FRAMES:
                self._frames.clear()
            self._frames[roles] = self._frame(roles, contents)
        if (frame := self._frames[roles]) is not None:
            return frame.filled(contents)
        return self.render(_turns(roles, contents))

    def _frame(self, roles: tuple[str, ...], contents: Sequence[str]) -> Frame | None:
        """The frame of chats with these roles, tried out on one of them; None where there is none."""
        if not self._has_frames:
            return None
        try:
            frame = Frame(self.render(_turns(roles, holes(len(roles)))))
            return frame if frame.filled(contents) == self.render(_turns(roles, contents)) else None
        except (ValueError, ObservedError):
            return None

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        """Token ids of each prompt; special tokens are added to raw prompts and to chats without a template."""
        templated = self._tokenizer.chat_template is not None
        plain = [not (chat and templated) for chat in rendered]
        encoded: dict[int, list[int]] = {}
        for add_special_tokens in (False, True):
            places = [place for place, add in enumerate(plain) if add == add_special_tokens]
            if places:
                texts = [prompts[place] for place in places]
                encoded |= zip(places, self._encode(texts, add_special_tokens), strict=True)
        return [encoded[place] for place in range(len(prompts))]

    def _encode(self, texts: list[str], add_special_tokens: bool) -> Iterable[list[int]]:
        """By the library's own core where there is one: what transformers puts around it takes as long again."""
        if self._core is None:
            return cast("list[list[int]]", self._tokenizer(texts, add_special_tokens=add_special_tokens)["input_ids"])
        if self._pieces is not None and not add_special_tokens:
            return self._pieces.encode(texts)
        return (one.ids for one in self._core.encode_batch_fast(texts, add_special_tokens=add_special_tokens))

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of these ids, special tokens left out."""
        return cast("str", self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def decode(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        """The answers' text, special tokens left out."""
        lists = [list(ids) for ids in token_ids]
        return cast("list[str]", self._tokenizer.batch_decode(lists, skip_special_tokens=True)) if lists else []


class ByteTokenizer:
    """One token a byte, for tests and dry runs without a model: id 0 ends a text, id b + 1 is the byte b."""

    max_token_bytes = 1
    vocab_size = 257

    def __init__(self, max_model_len: int | None = None) -> None:
        self.max_model_len = max_model_len or 8192

    def render(self, messages: list[dict[str, object]], tools: list[dict[str, object]] | None = None) -> str:
        try:
            defined = f"tools: {json.dumps(tools, ensure_ascii=False)}\n" if tools else ""
            return defined + "".join(map(_line, map(_flat, messages))) + "assistant: "
        except RecursionError as error:
            raise ValueError("nested too deeply") from error

    def render_turns(self, roles: tuple[str, ...], contents: Sequence[str]) -> str:
        return self.render(_turns(roles, contents))

    def encode(self, prompts: Sequence[str], *, rendered: Sequence[bool]) -> list[list[int]]:
        return [[byte + 1 for byte in prompt.encode("utf-8")] for prompt in prompts]

    def text(self, token_ids: Sequence[int]) -> str:
        return bytes(token - 1 for token in token_ids if token > 0).decode("utf-8", "replace")

    def decode(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        return [self.text(ids) for ids in token_ids]


def _turns(roles: Sequence[str], contents: Sequence[str]) -> list[dict[str, object]]:
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]


def _line(turn: dict[str, object]) -> str:
    """A turn as ByteTokenizer shows it, with the calls that it made."""
    calls = turn.get("tool_calls")
    return f"{turn['role']}: {turn['content']}{json.dumps(calls, ensure_ascii=False) if calls else ''}\n"


@lru_cache(maxsize=8)
def _reads_tools(template: str) -> bool:
    """Whether a chat template asks for `tools` anywhere, by the names that it takes from outside."""
    from jinja2 import meta
    from transformers.utils import chat_template_utils

    compiled = chat_template_utils._compile_jinja_template(template)  # with the tags that templates may have
    return "tools" in meta.find_undeclared_variables(compiled.environment.parse(template))


def _flat(message: dict[str, object]) -> dict[str, object]:
    """A turn as a text model's template expects it: one string, and `system` for OpenAI's `developer`."""
    content, role = message["content"], message["role"]
    if isinstance(content, list):
        content = "\n".join(part["text"] for part in content)
    return {**message, "content": content, "role": "system" if role == "developer" else role}


def context_length(folder: Path, given: int | None) -> int:
    """The model's context in tokens. Raises ConfigError when more is asked for than the model was made for."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = config | config.get("text_config", {})
    longest = next((int(config[key]) for key in _CONTEXT_KEYS if config.get(key)), None)
    if given is None and longest is None:
        raise ConfigError(f"{folder}/config.json does not say how long the context is; give --max-model-len")
    if given is not None and longest is not None and given > longest:
        raise ConfigError(f"max_model_len {given} is more than the model's {longest}")
    return given or longest or 0
