"""Profiles: data files with the speed of an engine, and the source of its figures."""

from __future__ import annotations

from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from enginehouse import ConfigError, did_you_mean
from enginehouse_sim.simulator.steps.models import DecodeTable, PolynomialSteps, PrefillTable, StepModel, TableSteps
from enginehouse_sim.simulator.steps.transfer import KvShape

_FILES = resources.files("enginehouse_sim.simulator.steps") / "profiles"


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", dict=True):
    """The fields of every profile. ``kv``: the model's KV cache, for transfers.

    ``obtained``: ``measured`` on an engine, ``computed`` from data sheets, or ``published`` by others. ``source``:
    where the figures can be checked.
    """

    description: str
    source: str
    obtained: Literal["measured", "computed", "published"]
    kv: KvShape = KvShape()


class PolynomialProfile(Profile, tag="polynomial", frozen=True, kw_only=True):
    """The coefficients of ``PolynomialSteps``."""

    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    floor_ms: float = 1.0

    @cached_property
    def steps(self) -> StepModel:
        return PolynomialSteps(self.prefill, self.decode, self.floor_ms)


class TableProfile(Profile, tag="table", frozen=True, kw_only=True):
    """The tables of ``TableSteps``."""

    prefill: PrefillTable
    decode: DecodeTable

    @cached_property
    def steps(self) -> StepModel:
        return TableSteps(self.prefill, self.decode)


AnyProfile = PolynomialProfile | TableProfile


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
