"""The state of a backend, as the process that judges it sends it to workers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.replica import Health, ReplicaState
from enginehouse.fleet.live_backend import LiveBackend


class BackendView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that decisions read of a backend and the configuration does not say.

    ``counts``: as ``HealthTracker`` has them. ``suspicions``: of its models, each with the status, the end of the pause
    and its doublings. Times are those of the fleet's clock. ``slots`` and the figures after it are those of ``Load``.
    """

    name: str
    has_listed: bool = False
    discovered: Mapping[str, Capabilities] = {}
    proxied: frozenset[str] = frozenset()
    health: Health = Health.UNKNOWN
    steady: bool = False
    counts: tuple[int, int, int] = (0, 0, 0)
    last_error: str | None = None
    last_error_at: float | None = None
    draining: bool = False
    states: Mapping[str, tuple[ReplicaState, float]] = {}
    left_alone_until: float = 0.0
    suspicions: Mapping[str, tuple[int, float, int]] = {}
    slots: int = 0
    engine_waiting: int = 0
    kv_usage: float = 0.0
    figures_at: float | None = None
    cache_tokens: int = 0
    error_share: float = 0.0


def view_of(live: LiveBackend) -> BackendView:
    """The state of ``live``."""
    health, load, pauses = live.health, live.load, live.pauses
    return BackendView(
        name=live.info.name,
        has_listed=live.has_listed,
        discovered=live.discovered,
        proxied=live.proxied,
        health=health.health,
        steady=health.steady,
        counts=health.counts,
        last_error=health.last_error,
        last_error_at=health.last_error_at,
        draining=live.draining,
        states=dict(live.states),
        left_alone_until=pauses.left_alone_until,
        suspicions=pauses.suspicions(),
        slots=load.slots,
        engine_waiting=load.engine_waiting,
        kv_usage=load.kv_usage,
        figures_at=load.figures_at,
        cache_tokens=load.cache_tokens,
        error_share=load.error_share,
    )


def follow(live: LiveBackend, view: BackendView) -> None:
    """Give ``live`` the state of ``view``."""
    live.has_listed = view.has_listed
    live.discovered = dict(view.discovered)
    live.proxied = view.proxied
    live.draining = view.draining
    live.states = dict(view.states)
    live.pauses.become(view.left_alone_until, view.suspicions)
    health, load = live.health, live.load
    if view.health is Health.HEALTHY and health.health is not Health.HEALTHY:
        load.forget_latencies()
    health.health, health.steady, health.counts = view.health, view.steady, view.counts
    health.last_error, health.last_error_at = view.last_error, view.last_error_at
    load.slots = view.slots
    load.engine_waiting, load.kv_usage, load.figures_at = view.engine_waiting, view.kv_usage, view.figures_at
    load.cache_tokens, load.error_share = view.cache_tokens, view.error_share
