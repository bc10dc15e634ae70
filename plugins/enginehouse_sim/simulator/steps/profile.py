"""Profiles: data files with the speed of an engine; those of a data sheet are computed here."""

from __future__ import annotations

from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from enginehouse import ConfigError
from enginehouse.settings import did_you_mean
from enginehouse_sim.simulator.steps.costs import KvShape, PassCosts, StepLoad
from enginehouse_sim.simulator.steps.models import PassSteps, PolynomialSteps, StepModel

_FILES = resources.files("enginehouse_sim.simulator.steps") / "profiles"


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limits of the engine that was measured, under the names of ``SchedulerConstants``; ``None``: unknown."""

    max_num_seqs: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    total_gpu_blocks: int | None = None
    async_scheduling: bool | None = None
    enable_prefix_caching: bool | None = None


class OutsideCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The time that a request spends outside of steps, in milliseconds: HTTP and tokenizing.

    ``request_ms``: each request, before its first step. ``prompt_token_ms``: each token of its prompt.
    """

    request_ms: float = 0.0
    prompt_token_ms: float = 0.0

    def seconds(self, prompt_tokens: int) -> float:
        return (self.request_ms + self.prompt_token_ms * prompt_tokens) / 1000


NOTHING_OUTSIDE = OutsideCosts()


class Accuracy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far predictions were from what was measured, as shares of it: 0.1 is 10 % too long.

    ``step``: the median size of the error of probes that the costs were not fitted to. The others compare a replay with
    the engine under the same ``requests``.
    """

    step: float | None = None
    ttft_p50: float | None = None
    ttft_p99: float | None = None
    tpot_p50: float | None = None
    tpot_p99: float | None = None
    latency_p50: float | None = None
    latency_p99: float | None = None
    requests: int = 0

    @property
    def margin(self) -> float | None:
        """The largest error of a median, else that of the probes; ``None`` if nothing was compared."""
        medians = [self.ttft_p50, self.tpot_p50, self.latency_p50]
        return max((abs(error) for error in medians if error is not None), default=self.step)


class Profile(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    dict=True,
    omit_defaults=True,
):
    """The fields of every profile. ``kv``: the model's KV cache, for transfers.

    ``obtained``: ``measured`` on an engine, ``computed`` from data sheets, or ``published`` by others. ``source``:
    where the figures can be checked. ``limits``: defaults of the flags. ``accuracy``: ``None`` if nobody has checked.
    """

    description: str
    source: str
    obtained: Literal["measured", "computed", "published"]
    kv: KvShape = KvShape()
    limits: EngineLimits = EngineLimits()
    outside: OutsideCosts = OutsideCosts()
    accuracy: Accuracy | None = None


class PassProfile(Profile, tag="pass", frozen=True, kw_only=True):
    """The costs of ``PassSteps``."""

    costs: PassCosts

    @cached_property
    def steps(self) -> StepModel:
        return PassSteps(self.costs)


class PolynomialProfile(Profile, tag="polynomial", frozen=True, kw_only=True):
    """The coefficients of ``PolynomialSteps``."""

    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    floor_ms: float = 1.0

    @cached_property
    def steps(self) -> StepModel:
        return PolynomialSteps(self.prefill, self.decode, self.floor_ms)


AnyProfile = PassProfile | PolynomialProfile


def profile_text(profile: AnyProfile) -> str:
    """The profile as a TOML file; fields with their default are left out."""
    import tomli_w

    return tomli_w.dumps(msgspec.to_builtins(profile))


def write_profile(path: Path, profile: AnyProfile) -> None:
    """Write the profile to a file. Raises ``ConfigError``."""
    try:
        path.write_text(profile_text(profile), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None


def profile_names() -> list[str]:
    """The bundled profiles."""
    return sorted(file.name.removesuffix(".toml") for file in _FILES.iterdir() if file.name.endswith(".toml"))


def load_profile(name: str) -> AnyProfile:
    """The bundled profile of that name, or the one in the ``.toml`` file at that path.

    Raises ``ConfigError`` if there is none, or if it cannot be used.
    """
    names = profile_names()
    if not name.endswith(".toml") and name not in names:
        raise ConfigError(
            f"There is no profile {name!r}",
            remedy=did_you_mean(name, names) or f"use one of {', '.join(names)}, or the path of a .toml file",
        )
    try:
        text = Path(name).read_bytes() if name.endswith(".toml") else (_FILES / f"{name}.toml").read_bytes()
        profile: AnyProfile = msgspec.toml.decode(text, type=AnyProfile)
    except OSError as error:
        raise ConfigError(f"The profile cannot be read: {error.strerror}", file=name) from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"The profile cannot be used: {error}", file=name) from error
    return profile


_PROMPTS = (1, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_LENGTHS = (8, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


def latency_files(model: StepModel, metadata: dict[str, str], total_tokens: int) -> list[dict[str, Any]]:
    """Llumnix's two files: the durations of steps that compute one prompt, and of steps that decode.

    ``total_tokens``: the size of the KV cache, for models that depend on the share in use.
    """
    prompts = [{"tokens_num": tokens, **_milliseconds(model, _prompt(tokens))} for tokens in _PROMPTS]
    decodes = [
        {
            "batch_size": batch,
            "tokens_per_request": length,
            **_milliseconds(
                model, StepLoad(decodes=batch, active_kv_tokens=batch * length, total_kv_tokens=total_tokens)
            ),
        }
        for batch in _BATCHES
        for length in _LENGTHS
    ]
    return [{"metadata": metadata, "results": points} for points in (prompts, decodes)]


def _prompt(tokens: int) -> StepLoad:
    return StepLoad(prefill_tokens=tokens, own_pairs=tokens * (tokens + 1) // 2, first_tokens=1)


def _milliseconds(model: StepModel, load: StepLoad) -> dict[str, Any]:
    """A model has no spread: all figures are the same."""
    duration = round(model.seconds(load) * 1000, 3)
    figures = dict.fromkeys(("mean", "min", "max", "p50", "p95", "p99"), duration)
    return {**figures, "std": 0.0, "raw_data": []}


class DataSheet(msgspec.Struct, frozen=True):
    """Dense 16-bit operations per second, bytes per second, and the shares of both that an engine reaches."""

    name: str
    flops: float
    bandwidth: float
    flops_share: float = 0.5
    bandwidth_share: float = 0.8


GPUS = {
    "h100": DataSheet("NVIDIA H100 SXM", 989e12, 3.35e12),
    "h200": DataSheet("NVIDIA H200 SXM", 989e12, 4.8e12),
    "a100": DataSheet("NVIDIA A100 80GB SXM", 312e12, 2.039e12),
    "l40s": DataSheet("NVIDIA L40S", 362e12, 0.864e12),
    "l4": DataSheet("NVIDIA L4", 121e12, 0.3e12),
    "a10g": DataSheet("NVIDIA A10G", 70e12, 0.6e12),
}
"""As the data sheets state them."""

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class Transformer(msgspec.Struct, frozen=True, kw_only=True):
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

    @property
    def kv(self) -> KvShape:
        return KvShape(
            layers=self.num_hidden_layers,
            kv_heads=self.num_key_value_heads or self.num_attention_heads,
            head_dim=self.head_dim or self.hidden_size // self.num_attention_heads,
            dtype_bytes=_BYTES.get(self.torch_dtype, 2),
        )


LLAMA_3_8B = Transformer(
    model_type="Llama 3 8B",
    num_hidden_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    vocab_size=128256,
    num_key_value_heads=8,
)


def computed_profile(gpu: DataSheet, model: Transformer) -> PassProfile:
    """The costs of a pass of ``model`` on one ``gpu``, to four digits.

    In the roofline model (https://doi.org/10.1145/1498765.1498785), work takes as long as its arithmetic or as reading
    its data, whichever is longer. That holds for the matrices and for attention, one after the other. Real engines
    reach a share of the data sheet's figures; the profile's ``source`` names that share.
    """
    kv, layers, hidden = model.kv, model.num_hidden_layers, model.hidden_size
    attention = 2 * hidden * hidden + 2 * hidden * kv.kv_heads * kv.head_dim  # four projections
    layer_weights = layers * (attention + 3 * hidden * model.intermediate_size)
    head_weights = hidden * model.vocab_size  # only tokens that get a successor use them
    pair_flops = 4 * layers * model.num_attention_heads * kv.head_dim  # 2 for the score, 2 for the value

    def computing(flops: float) -> float:
        return 1000 * flops / (gpu.flops * gpu.flops_share)

    def reading(size: float) -> float:
        return 1000 * size / (gpu.bandwidth * gpu.bandwidth_share)

    costs = {
        "weights_ms": reading((layer_weights + head_weights) * kv.dtype_bytes),
        "token_ms": computing(2 * layer_weights),
        "pair_ms": computing(pair_flops),
        "kv_token_ms": max(computing(pair_flops), reading(kv.bytes_per_token)),
        "sequence_ms": computing(2 * head_weights),
    }
    return PassProfile(
        description=f"{model.model_type} in 16 bit on one {gpu.name}",
        source=(
            f"Computed, not measured: {gpu.flops / 1e12:g} TFLOPS (16 bit, dense) and {gpu.bandwidth / 1e12:g} TB/s of "
            f"its data sheet, of which {gpu.flops_share:.0%} and {gpu.bandwidth_share:.0%} are assumed to be "
            "reached, and the model's matrix sizes; no launch or sampling times (enginehouse sim roofline)"
        ),
        obtained="computed",
        kv=kv,
        costs=PassCosts(**{name: float(f"{ms:.4g}") for name, ms in costs.items()}),
    )


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
        found = msgspec.json.decode(Path(text).read_bytes(), type=Transformer)
    except OSError as error:
        remedy = "give llama-3-8b, or the path of a model's config.json"
        raise ConfigError(
            f"The model cannot be read: {error.strerror}", file=text, key="--model", remedy=remedy
        ) from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"is not a config.json of a dense decoder: {error}", file=text, key="--model") from None
    return msgspec.structs.replace(found, model_type=found.model_type or Path(text).parent.name or "model")
