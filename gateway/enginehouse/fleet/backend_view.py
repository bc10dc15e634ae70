"""The state of a backend, as the process that judges it sends it to workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.replica import Health, ReplicaState
from enginehouse.fleet.live_backend import LiveBackend
from enginehouse.fleet.pauses import Suspicion


class BackendView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that decisions read of a backend and the configuration does not say.

    The fields are those of ``LiveBackend``, ``HealthTracker``, ``RoutingPauses`` and ``Load``, under the same names.
    """

    name: str
    has_listed: bool = False
    discovered: Mapping[str, Capabilities] = {}
    proxied: frozenset[str] = frozenset()
    draining: bool = False
    states: Mapping[str, tuple[ReplicaState, float, int]] = {}
    health: Health = Health.UNKNOWN
    steady: bool = False
    counts: tuple[int, int, int] = (0, 0, 0)
    last_error: str | None = None
    last_error_at: float | None = None
    problem: str = ""
    late: bool = False
    left_alone_until: float = 0.0
    suspicions: Mapping[str, Suspicion] = {}
    slots: int = 0
    engine_waiting: int = 0
    kv_usage: float = 0.0
    figures_at: float | None = None
    cache_tokens: int = 0
    error_share: float = 0.0


_OF_BACKEND = ("has_listed", "discovered", "proxied", "draining", "states")
_OF_HEALTH = ("health", "steady", "counts", "last_error", "last_error_at", "problem", "late")
_OF_PAUSES = ("left_alone_until", "suspicions")
_OF_LOAD = ("slots", "engine_waiting", "kv_usage", "figures_at", "cache_tokens", "error_share")


def view_of(live: LiveBackend) -> BackendView:
    """The state of ``live``."""
    fields = {name: getattr(part, name) for part, names in _parts(live) for name in names}
    fields |= {name: dict(fields[name]) for name in ("states", "suspicions")}  # these change in place
    return BackendView(name=live.info.name, **fields)


def follow(live: LiveBackend, view: BackendView) -> None:
    """Give ``live`` the state of ``view``."""
    if view.health is Health.HEALTHY and live.health.health is not Health.HEALTHY:
        live.load.forget_latencies()
    for part, names in _parts(live):
        for name in names:
            setattr(part, name, getattr(view, name))


def _parts(live: LiveBackend) -> Sequence[tuple[object, Sequence[str]]]:
    return (live, _OF_BACKEND), (live.health, _OF_HEALTH), (live.pauses, _OF_PAUSES), (live.load, _OF_LOAD)
