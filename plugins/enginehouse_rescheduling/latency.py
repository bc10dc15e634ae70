"""Predicts the durations of steps from measured ones, as Llumnix does."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TypeVar

import msgspec

from enginehouse import ConfigError
from enginehouse.rescheduling import ReschedulingSettings

BUNDLED = resources.files("enginehouse_rescheduling") / "profiles"
_SHORTEST = 8.0
"""The least tokens per request that are looked up, as in Llumnix."""


class Grid:
    """Measured values by two coordinates. ``value`` interpolates between the four nearest points.

    As in Llumnix, nothing is extrapolated: beyond the measured points, and where one of the four is missing, the value
    is infinite. At the origin it is 0.
    """

    def __init__(self, points: Mapping[tuple[float, float], float]) -> None:
        self._points = points
        self._rows = sorted({row for row, _ in points})
        self._columns = sorted({column for _, column in points})

    def value(self, row: float, column: float) -> float:
        """The value at a place: bilinear, linear where a coordinate was measured, exact where both were."""
        if row == column == 0:
            return 0.0
        rows, columns = _around(self._rows, row), _around(self._columns, column)
        if rows is None or columns is None:
            return float("inf")
        (top, bottom), (left, right) = rows, columns
        down, across = _share(top, bottom, row), _share(left, right, column)
        above = self._between((top, left), (top, right), across)
        below = self._between((bottom, left), (bottom, right), across)
        return above if not down else above + down * (below - above)

    def _between(self, start: tuple[float, float], end: tuple[float, float], share: float) -> float:
        first, last = self._points.get(start), self._points.get(end)
        if first is None or last is None:
            return float("inf")
        return first + share * (last - first)


def _around(axis: Sequence[float], at: float) -> tuple[float, float] | None:
    """The nearest points on both sides of ``at``; ``None`` if a side has none."""
    below, above = bisect_right(axis, at) - 1, bisect_left(axis, at)
    return None if below < 0 or above == len(axis) else (axis[below], axis[above])


def _share(start: float, end: float, at: float) -> float:
    return 0.0 if start == end else (at - start) / (end - start)


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


class LatencyPredictor:
    """Predicts milliseconds from two grids of measured steps."""

    def __init__(self, first_token: Grid, output_token: Grid) -> None:
        self._first_token = first_token
        self._output_token = output_token

    @classmethod
    def of(cls, settings: ReschedulingSettings) -> LatencyPredictor:
        """The predictor with the configured profiles. Raises ``ConfigError`` if one cannot be used."""
        return cls(first_token_grid(settings.ttft_profile), output_token_grid(settings.tpot_profile))

    def decode_step(self, requests: int, tokens: int) -> float:
        """The duration of a step that decodes ``requests`` of ``tokens`` in all; 0 without any."""
        if requests <= 0 or tokens <= 0:
            return 0.0
        return self._output_token.value(requests, max(tokens / requests, _SHORTEST))

    def prefill(self, tokens: int, most_per_step: int, decodes: int, decode_tokens: int) -> float:
        """The duration of all steps that compute ``tokens`` of prompts, each beside the same decodes.

        ``most_per_step``: the tokens of a full step; 0 if one step computes all.
        """
        beside = self.decode_step(decodes, decode_tokens)
        if beside == float("inf"):
            return beside
        full, rest = divmod(max(tokens, 0), most_per_step) if most_per_step > 0 else (0, max(tokens, 0))
        total = full * (self._first_token.value(most_per_step, 0.0) + beside) if full else 0.0
        return total + (self._first_token.value(rest, 0.0) + beside if rest else 0.0)
