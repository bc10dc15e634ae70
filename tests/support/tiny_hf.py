"""The tiny model as a Hugging Face folder, which vLLM loads: ``python -m tests.support.tiny_hf FOLDER``.

It runs in the environment of an engine, which has the packages for it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.support.tiny_model import CHAT_TEMPLATE, Shape, tokenizer, weights

_CONTEXT_LENGTH = 8192


def write_tiny_hf(folder: Path, seed: int = 0) -> None:
    """Write the model of ``seed`` to ``folder``: 4.4 MB."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens, merges = tokenizer()
    ids = {"bos_token_id": "<|bos|>", "eos_token_id": "<|im_end|>", "pad_token_id": "<|pad|>"}
    special = {name: tokens.index(token) for name, token in ids.items()}
    save_file(weights(seed, Shape()), folder / "model.safetensors", metadata={"format": "pt"})
    _write(folder / "config.json", _config(Shape(), len(tokens)) | special)
    _write(folder / "generation_config.json", special)
    _save_tokenizer(folder, tokens, merges)


def _config(shape: Shape, vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.dim,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": vocabulary,
        "max_position_embeddings": _CONTEXT_LENGTH,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }


def _save_tokenizer(folder: Path, tokens: list[str], merges: list[tuple[str, str]]) -> None:
    made = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in tokens if token[:2] == "<|"]
    )
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": _CONTEXT_LENGTH}
    names = {"bos_token": "<|bos|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>"}
    _write(folder / "tokenizer_config.json", settings | names | {"chat_template": CHAT_TEMPLATE})


def _write(file: Path, data: object) -> None:
    file.write_text(json.dumps(data, indent=1), encoding="utf-8")


if __name__ == "__main__":
    write_tiny_hf(Path(sys.argv[1]))
