"""PieceEncoder: token ids by way of the pieces between special tokens, so that a system prompt is encoded once.

The tokenizers library cuts a text at its special tokens first and then treats each piece by itself. Where nothing in a
tokenizer carries over from one piece to the next, the ids of a text are those of its pieces put together, and pieces that
come again need not be encoded again. Whether that holds is read off the tokenizer's own description; where it is not
certain there is no PieceEncoder, and texts are encoded whole.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

_MAX_KEPT_CHARS = 4_000_000
_SAFE_STEPS = frozenset(("Digits", "Split", "ByteLevel", "Punctuation"))


class PieceEncoder:
    """Encodes without adding special tokens. Remembers pieces that came more than once, up to some million characters."""

    def __init__(self, core: Any, special: dict[str, int]) -> None:
        self._core = core
        self._special = special
        longest_first = sorted(special, key=len, reverse=True)
        self._cut = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if special else None
        self._young: dict[str, list[int]] = {}
        self._old: dict[str, list[int]] = {}
        self._num_chars = 0

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text."""
        cut = [self._cut.split(text) if self._cut else [text] for text in texts]
        known = self._known(Counter(piece for pieces in cut for piece in pieces[::2] if piece))
        return [self._joined(pieces, known) for pieces in cut]

    def _known(self, wanted: Counter[str]) -> dict[str, list[int]]:
        """The ids of these pieces, each with the number of times that it is wanted."""
        known: dict[str, list[int]] = {}
        unknown = []
        for piece in wanted:
            ids = self._young.get(piece) or self._old.get(piece)
            if ids is None:
                unknown.append(piece)
            else:
                known[piece] = ids
        encoded = self._core.encode_batch_fast(unknown, add_special_tokens=False)
        known |= {piece: one.ids for piece, one in zip(unknown, encoded, strict=True)}
        if self._num_chars > _MAX_KEPT_CHARS:
            self._old, self._young, self._num_chars = self._young, {}, 0
        shared = {piece: known[piece] for piece, times in wanted.items() if times > 1}
        self._young |= shared
        self._num_chars += sum(map(len, shared))
        return known

    def _joined(self, pieces: Sequence[str], known: dict[str, list[int]]) -> list[int]:
        ids: list[int] = []
        for place, piece in enumerate(pieces):
            if place % 2:
                ids.append(self._special[piece])
            elif piece:
                ids += known[piece]
        return ids


def piece_encoder(core: Any) -> PieceEncoder | None:
    """The encoder of a tokenizer of the tokenizers library, or None where pieces are not certain to be independent."""
    described = json.loads(core.to_str())
    added = described.get("added_tokens") or []
    plain = all(not any(token[flag] for flag in ("lstrip", "rstrip", "single_word", "normalized")) for token in added)
    model = described.get("model") or {}
    if described.get("normalizer") or not plain or model.get("type") != "BPE" or model.get("dropout"):
        return None
    if not all(map(_is_safe, _steps(described.get("pre_tokenizer")))):
        return None
    return PieceEncoder(core, {token["content"]: token["id"] for token in added if token["content"]})


def _steps(pre_tokenizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    if pre_tokenizer is None:
        return [{"type": "none"}]
    if pre_tokenizer["type"] == "Sequence":
        return [step for inner in pre_tokenizer["pretokenizers"] for step in _steps(inner)]
    return [pre_tokenizer]


def _is_safe(step: dict[str, Any]) -> bool:
    """Whether a step sees nothing but the piece, and adds nothing to its beginning."""
    return step["type"] in _SAFE_STEPS and not step.get("add_prefix_space")
