"""Faults of engines that a replay injects."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from enum import Enum

import msgspec

from enginehouse import ConfigError, parse_duration
from enginehouse.settings import did_you_mean

_FORM = re.compile(
    r"(?P<engine>.+):(?P<kind>kill|stall|refuse|slow=(?P<factor>[^@]+))@(?P<at>[^@+]+)(\+(?P<duration>[^@+]+))?"
)
_REMEDY = "write ENGINE:KIND@TIME[+DURATION] with KIND kill, stall, refuse or slow=F: gpu-1:kill@30s+10s"


class FaultKind(str, Enum):
    """What happens to an engine.

    ``KILL``: it ends, with all connections and its cache. ``STALL``: it makes no progress and says nothing. ``SLOW``:
    its steps take longer. ``REFUSE``: it accepts no connection, and finishes what it has.
    """

    KILL = "kill"
    STALL = "stall"
    SLOW = "slow"
    REFUSE = "refuse"


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of ``engine`` from ``at`` on, in seconds since the first request of the trace.

    ``duration``: in seconds; ``None`` for the rest of the replay. ``factor``: of ``SLOW``.
    """

    engine: str
    kind: FaultKind
    at: float
    duration: float | None = None
    factor: float = 1.0

    @classmethod
    def parse(cls, text: str) -> PlannedFault:
        """Read ``ENGINE:KIND@TIME[+DURATION]``. Raises ``ConfigError``."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ConfigError(f"{text!r} is not a fault", key="--fault", remedy=_REMEDY)
        factor, duration = match["factor"], match["duration"]
        try:
            fault = cls(
                engine=match["engine"],
                kind=FaultKind(match["kind"].partition("=")[0]),
                at=_seconds(match["at"]),
                duration=None if duration is None else _seconds(duration),
                factor=float(factor) if factor else 1.0,
            )
        except ValueError as error:
            raise ConfigError(f"{text!r} is not a fault: {error}", key="--fault", remedy=_REMEDY) from None
        if not 0 < fault.factor < float("inf"):
            raise ConfigError(f"{text!r} is not a fault: F must be above 0", key="--fault", remedy=_REMEDY)
        return fault


def _seconds(text: str) -> float:
    """A number of seconds, or a duration with its unit."""
    number = text.replace(".", "", 1)
    return float(text) if number.isdecimal() else parse_duration(text)


class FaultPlan:
    """Begins and ends faults at their times, by ``suffer``. Raises ``ConfigError`` for one of no engine."""

    def __init__(
        self, faults: Sequence[PlannedFault], engines: Collection[str], suffer: Callable[[PlannedFault, bool], None]
    ) -> None:
        self._suffer = suffer
        self._due: list[tuple[float, int, PlannedFault, bool]] = []
        for number, fault in enumerate(faults):
            if fault.engine not in engines:
                hint = did_you_mean(fault.engine, list(engines)) or f"one of {', '.join(engines)}"
                raise ConfigError(f"there is no engine '{fault.engine}'", key="--fault", remedy=hint)
            self._due.append((fault.at, number, fault, True))
            if fault.duration is not None:
                self._due.append((fault.at + fault.duration, number, fault, False))
        self._due.sort(key=lambda due: due[:2], reverse=True)

    @property
    def next_at(self) -> float:
        """When the next fault begins or ends, in seconds since the first request; infinite if none will."""
        return self._due[-1][0] if self._due else math.inf

    def advance(self) -> None:
        """Begin or end that one."""
        self._suffer(*self._due.pop()[2:])
