"""Splits energy by the tokens in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Share(NamedTuple):
    """Who uses energy. Without a model nobody does: it is idle."""

    host: str = ""
    model: str = ""
    key: str = ""


IDLE = Share()


def split(joules: float, tokens: Iterable[tuple[Share, int]]) -> Mapping[Share, float]:
    """``joules`` by the ``tokens`` of live requests. A request counts as one token at least."""
    weights: dict[Share, int] = {}
    for share, count in tokens:
        weights[share] = weights.get(share, 0) + max(1, count)
    whole = sum(weights.values())
    return {share: joules * weight / whole for share, weight in weights.items()} if whole else {IDLE: joules}


def used(before: Mapping[str, float], now: Mapping[str, float]) -> float:
    """The joules between two readings of devices. A device that is new, or has begun again, counts from the next."""
    return sum(max(0.0, joules - before[name]) for name, joules in now.items() if name in before)
