"""Durations and sizes as people write them: ``"500ms"``, ``"10m"``, ``"24GiB"``."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "b": 1,
    **{f"{prefix}b": 1000 ** (n + 1) for n, prefix in enumerate("kmgt")},
    **{f"{prefix}ib": 1024 ** (n + 1) for n, prefix in enumerate("kmgt")},
}


def parse_duration(text: str) -> float:
    """Seconds; the unit is ``ms``, ``s``, ``m``, ``h`` or ``d``, and a bare ``0`` needs none. Raises ``ValueError``."""
    if (match := _NUMBER.fullmatch(text)) and (match[2] in _SECONDS or (not match[2] and float(match[1]) == 0)):
        return float(match[1]) * _SECONDS.get(match[2], 1.0)
    raise ValueError(f'expected a duration such as "500ms", "30s" or "10m", got "{text}"')


def parse_size(text: str) -> int:
    """Bytes; the unit is ``KiB``, ``MiB``, ``GiB``, ``TiB``, ``kB``, ``MB``, ``GB``, ``TB`` or none.

    Raises ``ValueError``.
    """
    if (match := _NUMBER.fullmatch(text)) and (match[2].lower() or "b") in _BYTES:
        return int(float(match[1]) * _BYTES[match[2].lower() or "b"])
    raise ValueError(f'expected a size such as "512MiB" or "24GiB", got "{text}"')


def format_duration(seconds: float) -> str:
    """The shortest text that ``parse_duration`` reads back as ``seconds``."""
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    return f"{seconds * 1000:g}ms" if seconds else "0"


def format_size(size: int) -> str:
    """The shortest text that ``parse_size`` reads back as ``size``."""
    for prefix, factor in (("Ti", 1024**4), ("Gi", 1024**3), ("Mi", 1024**2), ("Ki", 1024)):
        if size and size % factor == 0:
            return f"{size // factor}{prefix}B"
    return f"{size}B"
