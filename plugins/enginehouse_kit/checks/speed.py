"""Warns of slow plugins."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

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
