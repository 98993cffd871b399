"""The GGUF file of SmolLM2-135M-Instruct in, a Hugging Face folder out.

Invariant: the same file gives the same bytes; the weights equal those of transformers' own GGUF loader, and the
tokenizer splits off each digit as the original does. Neither torch nor transformers is needed.
"""

import json
import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

# What the GGUF file says of the model, with the epsilon that it rounds to single precision put right.
_CONFIG = """{
 "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 49152,
 "num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536, "hidden_act": "silu", "rms_norm_eps": 1e-05,
 "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "tie_word_embeddings": true,
 "rope_theta": 100000.0, "max_position_embeddings": 8192, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2
}
"""
_GENERATION_CONFIG = '{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}\n'
_TOKENIZER_CONFIG = """{
 "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192, "clean_up_tokenization_spaces": false,
 "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>"
}
"""
_HEAD_DIM = 64
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_model(source: Path, folder: Path) -> None:
    """A Hugging Face folder out of the GGUF file: bfloat16 weights, tokenizer, chat template, configs."""
    from gguf import GGUFReader

    reader = GGUFReader(source)
    _write_weights(reader, folder / "model.safetensors")
    texts = {
        "config.json": _CONFIG,
        "generation_config.json": _GENERATION_CONFIG,
        "tokenizer_config.json": _TOKENIZER_CONFIG,
        "tokenizer.json": _json(_tokenizer(reader)),
        "chat_template.jinja": reader.fields["tokenizer.chat_template"].contents(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _tokenizer(reader: "GGUFReader") -> dict[str, Any]:
    """Byte-level BPE that splits off each digit first, which GGUF only names (`smollm`) and does not spell out."""
    fields = ("tokens", "token_type", "merges")
    tokens, kinds, merges = (reader.fields[f"tokenizer.ggml.{field}"].contents() for field in fields)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    special = [{"id": i, "content": tokens[i], **flags} for i, kind in enumerate(kinds) if kind == 3]
    digits = {"type": "Digits", "individual_digits": True}
    vocab = {token: i for i, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, _BYTE_LEVEL]},
        "decoder": _BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def _write_weights(reader: "GGUFReader", path: Path) -> None:
    """The safetensors format: the header's length, a JSON header padded to 8 bytes, then the tensors end to end."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        start, end = end, end + 2 * math.prod(shape)
        header[_hf_name(tensor.name)] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(encoded)) + encoded)
        for tensor in reader.tensors:
            stream.write(_bfloat16(tensor))


def _hf_name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, part, leaf = name.split(".")
        return f"model.layers.{layer}.{_LAYER_PARTS[part]}.{leaf}"
    return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]


def _bfloat16(tensor: "ReaderTensor") -> bytes:
    """The tensor's values rounded to the nearest bfloat16, in the row order that transformers expects."""
    import numpy as np
    from gguf import dequantize

    weights = dequantize(tensor.data, tensor.tensor_type)
    if ".attn_q." in tensor.name or ".attn_k." in tensor.name:  # llama.cpp interleaves the halves of each rotary head
        pairs = weights.reshape(-1, _HEAD_DIM // 2, 2, weights.shape[1])
        weights = pairs.swapaxes(1, 2).reshape(weights.shape)
    bits = np.ascontiguousarray(weights, dtype=np.float32).view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2").tobytes()


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
