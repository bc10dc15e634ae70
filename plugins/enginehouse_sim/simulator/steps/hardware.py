"""GPUs by their data sheets, and models by their configuration files, for computed profiles."""

from __future__ import annotations

from pathlib import Path

import msgspec

from enginehouse import ConfigError, did_you_mean
from enginehouse_sim.simulator.steps.roofline import H100, LLAMA_3_8B, DataSheet, Transformer
from enginehouse_sim.simulator.steps.transfer import KvShape

GPUS = {
    "h100": H100,
    "h200": DataSheet(name="NVIDIA H200 SXM", flops=989e12, bandwidth=4.8e12),
    "a100": DataSheet(name="NVIDIA A100 80GB SXM", flops=312e12, bandwidth=2.039e12),
    "l40s": DataSheet(name="NVIDIA L40S", flops=362e12, bandwidth=0.864e12),
    "l4": DataSheet(name="NVIDIA L4", flops=121e12, bandwidth=0.3e12),
    "a10g": DataSheet(name="NVIDIA A10G", flops=70e12, bandwidth=0.6e12),
}
"""Dense 16-bit operations and bytes per second, as the data sheets state them."""

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class _ModelFile(msgspec.Struct):
    """The part of a ``config.json`` of Transformers that decides a dense decoder's matrices."""

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    vocab_size: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    torch_dtype: str = "bfloat16"
    model_type: str = ""


def gpu_called(name: str) -> DataSheet:
    """The GPU called ``name``. Raises ``ConfigError`` for an unknown one."""
    if name not in GPUS:
        remedy = did_you_mean(name, list(GPUS)) or f"use one of {', '.join(GPUS)}"
        raise ConfigError(f"There is no GPU {name!r}", key="--gpu", remedy=remedy)
    return GPUS[name]


def model_of(text: str) -> Transformer:
    """``llama-3-8b``, or the dense model of a ``config.json``. Raises ``ConfigError``."""
    if text == "llama-3-8b":
        return LLAMA_3_8B
    try:
        found = msgspec.json.decode(Path(text).read_bytes(), type=_ModelFile)
    except OSError as error:
        remedy = "give llama-3-8b, or the path of a model's config.json"
        raise ConfigError(
            f"The model cannot be read: {error.strerror}", file=text, key="--model", remedy=remedy
        ) from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"is not a config.json of a dense decoder: {error}", file=text, key="--model") from None
    return Transformer(
        name=found.model_type or Path(text).parent.name or "model",
        layers=found.num_hidden_layers,
        hidden=found.hidden_size,
        intermediate=found.intermediate_size,
        heads=found.num_attention_heads,
        vocabulary=found.vocab_size,
        kv=KvShape(
            layers=found.num_hidden_layers,
            kv_heads=found.num_key_value_heads or found.num_attention_heads,
            head_dim=found.head_dim or found.hidden_size // found.num_attention_heads,
            dtype_bytes=_BYTES.get(found.torch_dtype, 2),
        ),
    )
