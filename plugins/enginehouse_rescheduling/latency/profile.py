"""Files of measured latencies, in Llumnix's form."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TypeVar

import msgspec

from enginehouse import ConfigError
from enginehouse_rescheduling.latency.grid import Grid

BUNDLED = resources.files("enginehouse_rescheduling") / "profiles"


class FirstTokenPoint(msgspec.Struct, frozen=True):
    """``p50``: the median milliseconds of a step that computes ``tokens_num`` tokens of prompts."""

    tokens_num: float
    p50: float


class OutputTokenPoint(msgspec.Struct, frozen=True):
    """``p50``: the median milliseconds of a step that decodes ``batch_size`` requests of this length in tokens."""

    batch_size: float
    tokens_per_request: float
    p50: float


class _FirstTokenFile(msgspec.Struct):
    results: list[FirstTokenPoint]


class _OutputTokenFile(msgspec.Struct):
    results: list[OutputTokenPoint]


_File = TypeVar("_File", _FirstTokenFile, _OutputTokenFile)


def first_token_grid(path: str) -> Grid:
    """The times of prefill steps in the file at ``path``; without one, the bundled file. Raises ``ConfigError``."""
    points = _read(path, "ttft", _FirstTokenFile).results
    return Grid({(point.tokens_num, 0.0): point.p50 for point in points})


def output_token_grid(path: str) -> Grid:
    """The times of decode steps, as ``first_token_grid``."""
    points = _read(path, "tpot", _OutputTokenFile).results
    return Grid({(point.batch_size, point.tokens_per_request): point.p50 for point in points})


def _read(path: str, name: str, type: type[_File]) -> _File:
    key, remedy = f"rescheduling.{name}_profile", "name a profile in Llumnix's form, or none for the bundled one"
    try:
        text = Path(path).read_bytes() if path else (BUNDLED / f"{name}.json").read_bytes()
        found = msgspec.json.decode(text, type=type)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key=key, remedy=remedy) from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not a profile: {error}", key=key, remedy=remedy) from error
    if not found.results:
        raise ConfigError(f"{path} has no results", key=key, remedy=remedy)
    return found
