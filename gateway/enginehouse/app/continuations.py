"""Makes the rules for streams that break from the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse.config.managed import driver_of, managed_backends
from enginehouse.config.schema import Config
from enginehouse.interfaces.drivers import Driver
from enginehouse.relay.continuation.rules import ContinuationRules


def continuation_rules(config: Config, drivers: Mapping[str, Driver]) -> ContinuationRules:
    """The rules of ``config``; ``drivers`` are by type."""
    remote = {name: drivers[backend.driver] for name, backend in config.backends.items()}
    managed = {
        backend: drivers[driver_of(model)]
        for name, model in config.models.items()
        for backend in managed_backends(name, model)
    }
    moves = config.rescheduling
    return ContinuationRules(
        config.routing,
        config.models,
        {**remote, **managed},
        migrate_timeout=moves.migrate_timeout,
        moves_at_once=moves.moves_at_once,
    )
