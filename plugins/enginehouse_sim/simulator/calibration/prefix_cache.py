"""What an engine saves when it has read the beginning of a prompt before."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from enginehouse_sim.simulator.calibration.fit import Fitted
from enginehouse_sim.simulator.calibration.observation import Observation

_TELLING = 1.5
"""How many times as long a prompt must take as the rest of it, so that a measurement tells which of them was read."""


class PrefixCache(msgspec.Struct, frozen=True, kw_only=True):
    """The milliseconds to the first token of a prompt whose beginning the engine has just read.

    ``measured_ms``: the median. ``rest_ms``: what the costs give for the rest of it, ``whole_ms`` for all of it.
    ``works``: whether the engine took the beginning from its cache; ``None`` if the times do not tell.
    """

    measured_ms: float
    rest_ms: float
    whole_ms: float
    works: bool | None

    @property
    def error(self) -> float:
        """The error of the prediction for what the engine did, as a share; positive: too long."""
        return (self.whole_ms if self.works is False else self.rest_ms) / self.measured_ms - 1


def prefix_cache(observations: Sequence[Observation], fitted: Fitted) -> PrefixCache | None:
    """What ``observations`` of kind ``cached`` say; ``None`` without one."""
    if not observations:
        return None
    one, measured = observations[0], median(each.ms for each in observations)
    rest = one.predicted(fitted.costs, fitted.request_ms)
    whole = msgspec.structs.replace(one, work=one.uncached).predicted(fitted.costs, fitted.request_ms)
    works = measured * measured < rest * whole if whole > _TELLING * rest else None
    return PrefixCache(measured_ms=measured, rest_ms=rest, whole_ms=whole, works=works)
