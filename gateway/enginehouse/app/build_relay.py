"""Makes what live requests share from the configuration, and changes it when the configuration does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginehouse.api.cross_origin import CrossOriginProtection
from enginehouse.api.doors.admission import Admission
from enginehouse.app.build import time_limits
from enginehouse.app.build_guards import build_guards
from enginehouse.app.build_router import build_router
from enginehouse.app.build_waiting_room import build_waiting_room, configure_waiting_room
from enginehouse.app.continuations import continuation_rules, endpoints, engine_facts, hedge_delay, unlisted_models
from enginehouse.config.aliases import Aliases
from enginehouse.config.schema import Config
from enginehouse.engines.followed_caches import CacheView, FollowedCaches, kv_events_of
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.protocols import Protocol
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.context import RelayContext
from enginehouse.relay.live.progress_reports import ProgressReports
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing.body.body_filters import FiltersByName
from enginehouse.routing.router import Router
from enginehouse.scheduling.caller_shares import CallerShares
from enginehouse.scheduling.request_queue import RequestQueue
from enginehouse.scheduling.waiting_room import WaitingRoom
from enginehouse.telemetry.observers import Observers
from enginehouse.telemetry.record_delivery import RecordDelivery
from enginehouse.telemetry.tracer import Tracer


class RelayParts(NamedTuple):
    """What a relay works with, beside its configuration.

    ``drivers``: by type.
    ``queues``: by backend; live.
    ``tracer``: ``None`` if no request is traced.
    ``shares``: whether the scheduler gives callers their turns.
    ``caches``: those of engines that tell what they have.
    """

    fleet: Fleet
    upstreams: dict[str, Upstream]
    drivers: Mapping[str, DriverSupport]
    queues: Mapping[str, RequestQueue]
    observers: Observers
    protocols: Sequence[Protocol]
    tracer: Tracer | None
    outside: Outside
    shares: bool
    caches: FollowedCaches


def build_relay(config: Config, registry: Registry, parts: RelayParts) -> Relay:
    """The relay of live requests, with its router, its guards and the room of requests that wait for a model.

    Raises ``ConfigError`` or ``PluginError``.
    """
    clock, observers = parts.outside.clock, parts.observers
    waiting_room = build_waiting_room(config, parts.fleet, observers)
    relay = Relay(
        _context(config, registry, parts, waiting_room),
        RecordDelivery(observers.callbacks("finished"), clock.now),
        ProgressReports(config.models, config.scheduling, parts.queues, clock, waiting_room),
    )
    relay.context.guards = build_guards(config, registry)
    relay.mirror(config.routing.mirrors)
    observers.add(waiting_room)
    return relay


def _context(config: Config, registry: Registry, parts: RelayParts, waiting_room: WaitingRoom) -> RelayContext:
    clock = parts.outside.clock
    kv_events_of(config, parts.drivers)  # raises if the package that reads them is missing
    caches = CacheView(parts.caches)
    parts.caches.use(caches)
    context = RelayContext(
        build_router(config, registry, clock, caches, waiting_room.counts),
        parts.fleet,
        parts.upstreams,
        queues=parts.queues,
        observers=parts.observers,
        clock=clock,
        tracer=parts.tracer,
        max_series=config.telemetry.max_series,
        protocols={path: each for each in parts.protocols for path in each.paths},
        engine_memory=parts.outside.engine_memory,
        waiting_room=waiting_room,
        shares=CallerShares() if parts.shares else None,
    )
    _configure(context, config, parts.drivers)
    return context


def change_relay(
    relay: Relay,
    admission: Admission,
    config: Config,
    drivers: Mapping[str, DriverSupport],
    upstreams: dict[str, Upstream],
    router: Router,
) -> Mapping[str, Upstream]:
    """Put ``config`` in force for requests from now on. Returns the upstreams that were used before."""
    admission.cross_origin = CrossOriginProtection(config.server)
    admission.max_body = config.server.max_body
    admission.body_memory.most = config.server.max_body_memory
    admission.client_timeout = config.timeouts.client
    context = relay.context
    context.engine_memory.most = config.server.max_engine_memory
    if router is not context.router:
        router.filter_drops.update(context.router.filter_drops)
        router.recall(context.router.memories())
    context.router = router
    configure_waiting_room(context.waiting_room, config)
    relay.progress_reports.configure(config.models, config.scheduling)
    relay.mirror(config.routing.mirrors)
    _configure(context, config, drivers)
    before, context.upstreams = context.upstreams, upstreams
    for name, limits in time_limits(config).items():
        upstreams[name].timeouts = limits
    return before


def _configure(context: RelayContext, config: Config, drivers: Mapping[str, DriverSupport]) -> None:
    context.max_retries = config.routing.max_retries
    context.budget.share = config.routing.retry_budget
    context.gather = config.routing.gather
    context.hold_answers = config.server.hold_answers
    context.renames = config.routing.answer_model == "asked"
    context.hash_users = config.auth.hash_users
    context.key_names = config.auth.key_names
    context.hedging = hedge_delay(config, context.hedging)
    context.continuation = continuation_rules(config, drivers)
    context.engine_facts = engine_facts(config, drivers, context.clock)
    context.endpoints = endpoints(config, drivers)
    context.unlisted_models = unlisted_models(config)
    context.filters = FiltersByName(config.models, Aliases(config.routing.aliases))
