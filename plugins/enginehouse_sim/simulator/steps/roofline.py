"""Computes a profile from the data sheet of a GPU and the configuration file of a model.

``enginehouse sim roofline`` prints it. In the roofline model (https://doi.org/10.1145/1498765.1498785), work takes as
long as its arithmetic or as reading its data, whichever is longer. That holds for the matrices and for attention, one
after the other. Real engines reach a share of the data sheet's figures; the profile's ``source`` names that share.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from enginehouse import ConfigError, did_you_mean
from enginehouse_sim.simulator.steps.costs import KvShape, PassCosts
from enginehouse_sim.simulator.steps.profile import PassProfile


class DataSheet(msgspec.Struct, frozen=True, kw_only=True):
    """Dense 16-bit operations per second, bytes per second, and the shares of both that an engine reaches."""

    name: str
    flops: float
    bandwidth: float
    flops_share: float = 0.5
    bandwidth_share: float = 0.8


class Transformer(msgspec.Struct, frozen=True, kw_only=True):
    """The matrix sizes of a dense decoder."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    kv: KvShape

    @property
    def layer_weights(self) -> int:
        """The parameters of all layers: four projections of attention, and three matrices of the MLP."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv.kv_heads * self.kv.head_dim
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_weights(self) -> int:
        """The parameters of the output layer. Only tokens that get a successor use them."""
        return self.hidden * self.vocabulary

    @property
    def flops_per_pair(self) -> int:
        """The operations of attention for a pair of tokens: for each dimension, 2 for the score and 2 for the value."""
        return 4 * self.layers * self.heads * self.kv.head_dim

    @property
    def weight_bytes(self) -> int:
        """The bytes of weights that every step reads."""
        return (self.layer_weights + self.head_weights) * self.kv.dtype_bytes


H100 = DataSheet(name="NVIDIA H100 SXM", flops=989e12, bandwidth=3.35e12)
LLAMA_3_8B = Transformer(
    name="Llama 3 8B", layers=32, hidden=4096, intermediate=14336, heads=32, vocabulary=128256, kv=KvShape()
)


def computed_profile(gpu: DataSheet, model: Transformer) -> PassProfile:
    """The costs of a pass of ``model`` on one ``gpu``, to four digits."""
    bytes_of_token, head_flops = model.kv.bytes_per_token, 2 * model.head_weights
    return PassProfile(
        description=f"{model.name} in 16 bit on one {gpu.name}",
        source=(
            f"Computed, not measured: {gpu.flops / 1e12:g} TFLOPS (16 bit, dense) and {gpu.bandwidth / 1e12:g} TB/s of "
            f"its data sheet, of which {gpu.flops_share:.0%} and {gpu.bandwidth_share:.0%} are assumed to be "
            "reached, and the model's matrix sizes; no launch or sampling times (simulator/steps/roofline.py)"
        ),
        obtained="computed",
        kv=model.kv,
        costs=PassCosts(
            weights_ms=_rounded(_reading_ms(gpu, model.weight_bytes)),
            token_ms=_rounded(_compute_ms(gpu, 2 * model.layer_weights)),
            pair_ms=_rounded(_compute_ms(gpu, model.flops_per_pair)),
            kv_token_ms=_rounded(max(_compute_ms(gpu, model.flops_per_pair), _reading_ms(gpu, bytes_of_token))),
            sequence_ms=_rounded(_compute_ms(gpu, head_flops)),
        ),
    )


def _compute_ms(gpu: DataSheet, flops: float) -> float:
    return 1000 * flops / (gpu.flops * gpu.flops_share)


def _reading_ms(gpu: DataSheet, size: float) -> float:
    return 1000 * size / (gpu.bandwidth * gpu.bandwidth_share)


def _rounded(ms: float) -> float:
    return float(f"{ms:.4g}")


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
