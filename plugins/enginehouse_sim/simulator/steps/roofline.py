"""Computes a profile from data sheets.

``enginehouse sim roofline`` prints the bundled one.

In the roofline model (https://doi.org/10.1145/1498765.1498785), a step takes as long as its arithmetic, or as reading
the weights and the KV cache, whichever is longer. Real engines reach a share of the data sheet's figures; the profile's
``source`` names the assumed share.
"""

from __future__ import annotations

import msgspec

from enginehouse_sim.simulator.steps.models import DecodeTable, PrefillTable
from enginehouse_sim.simulator.steps.profile import TableProfile
from enginehouse_sim.simulator.steps.transfer import KvShape

_TOKENS = (1, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_ACTIVE = (0, 16384, 65536, 131072, 262144, 524288)
_BATCH = (1, 16, 64, 128, 256, 512, 1024)


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
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


H100 = Gpu(name="NVIDIA H100 SXM", flops=989e12, bandwidth=3.35e12)
LLAMA_3_8B = Transformer(
    name="Llama 3 8B", layers=32, hidden=4096, intermediate=14336, heads=32, vocabulary=128256, kv=KvShape()
)


def computed_profile(gpu: Gpu, model: Transformer) -> TableProfile:
    """The tables of ``model`` on one ``gpu``, rounded to microseconds."""
    return TableProfile(
        description=f"{model.name} in 16 bit on one {gpu.name}",
        source=(
            f"Computed, not measured: {gpu.flops / 1e12:g} TFLOPS (16 bit, dense) and {gpu.bandwidth / 1e12:g} TB/s of "
            f"its data sheet, of which {gpu.flops_share:.0%} and {gpu.bandwidth_share:.0%} are assumed to be "
            "reached, and the model's matrix sizes; no launch or sampling times (simulator/steps/roofline.py)"
        ),
        obtained="computed",
        kv=model.kv,
        prefill=PrefillTable(
            tokens=_TOKENS,
            ms=tuple(round(_prefill_ms(gpu, model, tokens), 3) for tokens in _TOKENS),
            ms_per_pair=float(f"{_compute_ms(gpu, model.flops_per_pair):.4g}"),
        ),
        decode=DecodeTable(
            active_kv_tokens=_ACTIVE,
            batch=_BATCH,
            ms=tuple(tuple(round(_decode_ms(gpu, model, active, batch), 3) for batch in _BATCH) for active in _ACTIVE),
        ),
    )


def _prefill_ms(gpu: Gpu, model: Transformer, tokens: int) -> float:
    pairs = tokens * (tokens + 1) / 2
    flops = 2 * model.layer_weights * tokens + 2 * model.head_weights + model.flops_per_pair * pairs
    return max(_compute_ms(gpu, flops), _reading_ms(gpu, model.weight_bytes))


def _decode_ms(gpu: Gpu, model: Transformer, active: int, batch: int) -> float:
    flops = 2 * (model.layer_weights + model.head_weights) * batch + model.flops_per_pair * active
    return max(_compute_ms(gpu, flops), _reading_ms(gpu, model.weight_bytes + model.kv.bytes_per_token * active))


def _compute_ms(gpu: Gpu, flops: float) -> float:
    return 1000 * flops / (gpu.flops * gpu.flops_share)


def _reading_ms(gpu: Gpu, size: float) -> float:
    return 1000 * size / (gpu.bandwidth * gpu.bandwidth_share)
