"""Assertions of the conformance checks, and warnings of slow plugins."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def expect(holds: bool, otherwise: str) -> None:
    """Raise ``AssertionError`` with the text ``otherwise`` unless ``holds`` is true."""
    if not holds:
        raise AssertionError(otherwise)


def expect_sequence(method: str, value: object) -> None:
    """Raise ``AssertionError`` unless ``value``, returned by ``method``, is a sequence other than a string."""
    if not isinstance(value, Sequence) or isinstance(value, str):  # writing the text takes longer than most checks
        raise AssertionError(f"{method} must return a sequence (a list or a tuple), got {value!r}")


def expect_status(status: object) -> None:
    """Raise ``AssertionError`` unless ``status``, returned by a method of that name, is a mapping for JSON."""
    expect(isinstance(status, Mapping), f"status must return a mapping, got {status!r}")
    try:
        msgspec.json.encode(status)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"status must be for JSON: {error}") from None


async def within(seconds: float, what: str, made: Any) -> Any:
    """What a plugin has returned, awaited if that is possible. Raises ``AssertionError`` if it takes longer."""
    if not isinstance(made, Awaitable):
        return made
    try:
        return await asyncio.wait_for(made, seconds)
    except (asyncio.TimeoutError, TimeoutError):
        raise AssertionError(f"{what} must return within {seconds:g} seconds") from None


SLOW_S = 0.05
"""A call that takes longer delays every request of the gateway. The bundled plugins need about 1 ms."""
_ATTEMPTS = 3
_FEW = 4


class SlowPluginWarning(UserWarning):
    """A call of a plugin took longer than 50 ms, in each of three attempts. It delays every request of the gateway."""


def affordable(samples: Sequence[T], what: str, call: Callable[[], object]) -> Sequence[T]:
    """Return ``samples``, or only a few of them if ``call`` is slow; a ``SlowPluginWarning`` then names ``what``."""
    return samples[:_FEW] if warn_if_slow(what, call) else samples


def warn_if_slow(what: str, call: Callable[[], object], calls: int = 1) -> bool:
    """Warn if the fastest of three attempts is slow; ``call`` makes ``calls`` calls of the plugin.

    Stops at the first attempt that is not slow, so a busy machine causes no warning.
    """
    fastest = float("inf")
    for _ in range(_ATTEMPTS):
        began = perf_counter()
        call()
        fastest = min(fastest, (perf_counter() - began) / calls)
        if fastest <= SLOW_S:
            return False
    text = f"{what} took {fastest * 1000:.0f} ms; more than {SLOW_S * 1000:.0f} ms delay every request of the gateway"
    warnings.warn(text, SlowPluginWarning, stacklevel=4)
    return True
