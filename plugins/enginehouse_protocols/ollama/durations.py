"""Durations as Ollama's clients write them."""

from __future__ import annotations

import math
import re
from typing import Final

from enginehouse import InvalidRequest

_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(keep_alive: float | str | None) -> float | None:
    """``keep_alive`` in seconds: a number of them, or a text of Go's such as ``1h30m``. Below 0, it is without end.

    Raises ``InvalidRequest`` for any other text.
    """
    if keep_alive is None:
        return None
    value = keep_alive if isinstance(keep_alive, (int, float)) else _read(keep_alive)
    return math.inf if value < 0 else float(value)


def _read(text: str) -> float:
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text)
    parts = _PART.findall(rest)
    if "".join(number + unit for number, unit in parts) == rest and parts:
        return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(
            f"keep_alive: '{text}' is not a duration: write '5m', '0' or '-1'", param="keep_alive"
        ) from None
