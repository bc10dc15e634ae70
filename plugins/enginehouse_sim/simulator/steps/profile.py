"""Profiles: data files with the speed of an engine."""

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


def write_profile(path: Path, profile: AnyProfile) -> None:
    """Write the profile to a TOML file, without fields that have their default. Raises ``ConfigError``."""
    import tomli_w

    try:
        path.write_text(tomli_w.dumps(msgspec.to_builtins(profile)), encoding="utf-8")
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
