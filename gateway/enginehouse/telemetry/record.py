"""Parts of the records that the gateway keeps of its work."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse.domain.request_record import AttemptRecord


def first_answered(attempts: Sequence[AttemptRecord]) -> AttemptRecord:
    """The attempt that gave the client its first byte, whichever others continued its stream; else the last one."""
    return next((each for each in attempts if each.first_byte and each.outcome != "answered"), attempts[-1])


class SwapRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One swap. Times are in ``perf_counter`` seconds. ``outcome``: ``ready`` or ``failed``."""

    target: str
    evicted: tuple[str, ...]
    began: float
    ended: float
    outcome: str


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """The tokens of a request, as its engine counted them. ``cached``: of the prompt, if the engine says so."""

    input: int
    output: int
    cached: int | None = None
