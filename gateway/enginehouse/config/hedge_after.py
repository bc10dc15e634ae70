"""The value of ``routing.hedge_after``."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse.config.units import parse_duration

OFF = "off"


class HedgeAfter(NamedTuple):
    """The time without a first byte after which a second replica gets the request too.

    ``percentile``: of recent times to the first byte, from 50 to 99; or 0, and then ``seconds``.
    """

    percentile: int
    seconds: float


def parse_hedge_after(text: str) -> HedgeAfter | None:
    """The meaning of ``text``, ``None`` for ``off``. Raises ``ValueError``."""
    if text == OFF:
        return None
    if text[:1] == "p" and text[1:].isascii() and text[1:].isdecimal() and 50 <= int(text[1:]) <= 99:
        return HedgeAfter(int(text[1:]), 0.0)
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not seconds:
        raise ValueError(
            f'expected "off", a percentile such as "p95" (p50 to p99) or a duration such as "2s", got "{text}"'
        )
    return HedgeAfter(0, seconds)
