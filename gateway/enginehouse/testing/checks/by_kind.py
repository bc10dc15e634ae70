"""The conformance check of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from enginehouse.testing.checks.discoverers import check_discoverer
from enginehouse.testing.checks.drivers import check_driver
from enginehouse.testing.checks.engine_policies import check_engine_policy
from enginehouse.testing.checks.extractors import check_extractor
from enginehouse.testing.checks.guards import check_guard
from enginehouse.testing.checks.launchers import check_launcher
from enginehouse.testing.checks.limit_stores import check_limit_store
from enginehouse.testing.checks.model_sources import check_model_source
from enginehouse.testing.checks.observers import check_observer
from enginehouse.testing.checks.protocols import check_protocol
from enginehouse.testing.checks.rescheduling_checks import check_migrator, check_rescheduling_policy
from enginehouse.testing.checks.routing import check_filter, check_scorer, check_strategy
from enginehouse.testing.checks.scalers import check_scaler
from enginehouse.testing.checks.schedulers import check_scheduler
from enginehouse.testing.checks.surfaces import check_command, check_routes
from enginehouse.testing.checks.swappers import check_swapper
from enginehouse.testing.checks.usage_stores import check_usage_store

CHECKS: Mapping[str, Callable[[Callable[[], Any]], None]] = {
    "extractor": check_extractor,
    "filter": check_filter,
    "scorer": check_scorer,
    "strategy": check_strategy,
    "scheduler": check_scheduler,
    "swapper": check_swapper,
    "scaler": check_scaler,
    "driver": check_driver,
    "launcher": check_launcher,
    "discoverer": check_discoverer,
    "model_source": check_model_source,
    "protocol": check_protocol,
    "guard": check_guard,
    "limit_store": check_limit_store,
    "usage_store": check_usage_store,
    "rescheduling_policy": check_rescheduling_policy,
    "migrator": check_migrator,
    "engine_policy": check_engine_policy,
    "observer": check_observer,
    "routes": check_routes,
    "command": check_command,
}
"""The check of each kind, by name, in the order of the hooks."""

WITH_EFFECTS = frozenset({"launcher", "discoverer", "guard", "limit_store", "usage_store", "observer"})
"""The kinds whose checks start processes, reach other machines, or let an observer write."""
