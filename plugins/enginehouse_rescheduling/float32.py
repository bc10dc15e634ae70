"""Numbers as Llumnix compares them: in single precision."""

from __future__ import annotations

from struct import Struct

_SINGLE = Struct("<f")

LARGEST = (2 - 2**-23) * 2.0**127
"""The largest finite number in single precision."""


def float32(number: float) -> float:
    """The nearest number in single precision. A number that is too large becomes infinite."""
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
