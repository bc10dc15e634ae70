"""Durations, sizes and ranges of ports as text: ``"500ms"``, ``"10m"``, ``"24GiB"``, ``"20000-32767"``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
# decimal, so that ``format_duration`` writes back what was read
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
_BYTES = {
    "b": 1,
    **{f"{prefix}b": 1000 ** (n + 1) for n, prefix in enumerate("kmgt")},
    **{f"{prefix}ib": 1024 ** (n + 1) for n, prefix in enumerate("kmgt")},
}
_RANGE = re.compile(r"\s*([0-9]{1,5})\s*-\s*([0-9]{1,5})\s*")
_LAST_PORT = 65_535


def parse_duration(text: str) -> float:
    """The seconds of a text such as ``"500ms"`` or ``"10m"``. Raises ``ValueError`` for any other text.

    The units are ``ms``, ``s``, ``m``, ``h`` and ``d``. ``"0"`` needs no unit.
    """
    if (match := _NUMBER.fullmatch(text)) and (match[2] in _SECONDS or (not match[2] and float(match[1]) == 0)):
        return float(Decimal(match[1]) * _SECONDS.get(match[2], 1))
    raise ValueError(f'expected a duration such as "500ms", "30s" or "10m", got "{text}"')


def parse_size(text: str) -> int:
    """The bytes of a text such as ``"24GiB"``. Raises ``ValueError`` for any other text.

    The units are ``KiB``, ``MiB``, ``GiB``, ``TiB``, ``kB``, ``MB``, ``GB``, ``TB`` and ``B``. The default is ``B``.
    """
    if (match := _NUMBER.fullmatch(text)) and (match[2].lower() or "b") in _BYTES:
        return int(Decimal(match[1]) * _BYTES[match[2].lower() or "b"])
    raise ValueError(f'expected a size such as "512MiB" or "24GiB", got "{text}"')


def parse_ports(text: str) -> tuple[int, int]:
    """The first and the last port of a text such as ``"20000-32767"``. Raises ``ValueError`` for any other text."""
    if found := _RANGE.fullmatch(text):
        first, last = int(found[1]), int(found[2])
        if 0 < first <= last <= _LAST_PORT:
            return first, last
    raise ValueError(f'expected ports such as "20000-32767", got "{text}"')


MEASURES: Mapping[str, Callable[[str], float]] = {"duration": parse_duration, "size": parse_size}
"""How text in a unit becomes a number."""


def format_duration(seconds: float) -> str:
    """``seconds`` as text in the largest unit that divides them. ``parse_duration`` reverses it."""
    for unit in ("d", "h", "m", "s"):
        length = int(_SECONDS[unit])
        if seconds and seconds % length == 0:
            return f"{int(seconds) // length}{unit}"
    return f"{(Decimal(repr(seconds)) * 1000).normalize():f}ms" if seconds else "0"


def format_size(size: int) -> str:
    """``size`` as text in the largest unit that divides it. ``parse_size`` reverses it."""
    for prefix, factor in (("Ti", 1024**4), ("Gi", 1024**3), ("Mi", 1024**2), ("Ki", 1024)):
        if size and size % factor == 0:
            return f"{size // factor}{prefix}B"
    return f"{size}B"
