"""The tiny model as a GGUF file, which llama.cpp loads."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.support.tiny_model import CHAT_TEMPLATE, Shape, tokenizer, weights

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


_OF_VOCABULARY = ("model.embed_tokens.weight", "lm_head.weight")


def write_tiny_gguf(path: Path, seed: int = 0, context_length: int = 8192, vocabulary: int = 0) -> None:
    """Write the model of ``seed`` to ``path``: 4.3 MB.

    ``vocabulary``: the number of tokens, if it should have more than its own; the others are never generated.
    """
    shape = Shape()
    writer = gguf.GGUFWriter(path, "llama")
    _write_shape(writer, shape, context_length)
    more = max(0, vocabulary - len(tokenizer()[0]))
    _write_tokenizer(writer, more)
    for name, tensor in weights(seed, shape).items():
        if name in _OF_VOCABULARY:
            tensor = np.pad(tensor, ((0, more), (0, 0)))
        writer.add_tensor(_gguf_name(name), np.ascontiguousarray(_gguf_layout(name, tensor, shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_shape(writer: gguf.GGUFWriter, shape: Shape, context_length: int) -> None:
    writer.add_name("tiny-random-llama")
    writer.add_context_length(context_length)
    writer.add_embedding_length(shape.dim)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _write_tokenizer(writer: gguf.GGUFWriter, more: int) -> None:
    tokens, merges = tokenizer()
    tokens += [f"extra{n}" for n in range(more)]
    kinds = gguf.TokenType
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.CONTROL if token.startswith("<|") else kinds.NORMAL for token in tokens])
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(tokens.index("<|bos|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|pad|>"))
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.weight"


def _gguf_layout(name: str, tensor: np.ndarray, shape: Shape) -> np.ndarray:
    """Queries and keys lie interleaved in a GGUF file, in two halves in a Hugging Face one."""
    heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads}.get(name.split(".")[-2])
    if heads is None:
        return tensor
    rows, columns = tensor.shape
    return tensor.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(tensor.shape)
