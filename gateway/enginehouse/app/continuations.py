"""Makes the rules for streams that break or are slow to begin, and the questions to engines, from the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse.aio.clock import Clock
from enginehouse.config.aliases import Aliases
from enginehouse.config.managed import driver_of, managed_backends
from enginehouse.config.routing import parse_hedge_after
from enginehouse.config.schema import Config
from enginehouse.engines.launch_line import launch_spec
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.relay.continuation.rules import ContinuationRules
from enginehouse.relay.endpoints import Endpoints
from enginehouse.relay.engine_facts import EngineFacts
from enginehouse.relay.retrying.hedge_delay import HedgeDelay
from enginehouse.routing.models_to_try import ModelsToTry


def continuation_rules(config: Config, drivers: Mapping[str, DriverSupport]) -> ContinuationRules:
    """The rules of ``config``; ``drivers`` are by type."""
    moves = config.rescheduling
    return ContinuationRules(
        config.routing,
        config.models,
        _by_backend(config, drivers),
        migrate_timeout=moves.migrate_timeout,
        moves_at_once=moves.moves_at_once,
    )


def hedge_delay(config: Config, before: HedgeDelay | None = None) -> HedgeDelay | None:
    """The delay of hedges; ``before`` stays, with its measured times, if the configuration has not changed."""
    after = parse_hedge_after(config.routing.hedge_after)
    if after is None:
        return None
    return before if before is not None and before.after == after else HedgeDelay(after)


def engine_facts(config: Config, drivers: Mapping[str, DriverSupport], clock: Clock) -> EngineFacts:
    """The store of the facts that engines report; ``drivers`` are by type."""
    specs = {
        backend: launch_spec(name, model, drivers[driver_of(model)].launch)
        for name, model in config.models.items()
        for backend in managed_backends(name, model)
    }
    return EngineFacts(_by_backend(config, drivers), specs, clock.now)


def endpoints(config: Config, drivers: Mapping[str, DriverSupport]) -> Endpoints:
    """The paths that the engines of ``config`` serve themselves; ``drivers`` are by type."""
    routing = config.routing
    return Endpoints(
        {backend: frozenset(each.driver.endpoints) for backend, each in _by_backend(config, drivers).items()},
        {name: frozenset(model.endpoints) for name, model in config.models.items() if model.endpoints is not None},
        ModelsToTry(Aliases(routing.aliases), routing.fallbacks),
    )


def unlisted_models(config: Config) -> frozenset[str]:
    """The models that no list names."""
    return frozenset(name for name, model in config.models.items() if model.unlisted)


def _by_backend(config: Config, drivers: Mapping[str, DriverSupport]) -> Mapping[str, DriverSupport]:
    remote = {name: drivers[backend.driver] for name, backend in config.backends.items()}
    managed = {
        backend: drivers[driver_of(model)]
        for name, model in config.models.items()
        for backend in managed_backends(name, model)
    }
    return {**remote, **managed}
