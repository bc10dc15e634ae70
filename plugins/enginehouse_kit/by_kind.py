"""The conformance check of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from enginehouse.testing.installed import create
from enginehouse_kit.checks.discoverers import check_discoverer
from enginehouse_kit.checks.drivers import check_driver
from enginehouse_kit.checks.engine_policies import check_engine_policy
from enginehouse_kit.checks.extractors import check_extractor
from enginehouse_kit.checks.guards import check_guard
from enginehouse_kit.checks.launchers import check_launcher
from enginehouse_kit.checks.limit_stores import check_limit_store
from enginehouse_kit.checks.model_sources import check_model_source
from enginehouse_kit.checks.observers import check_observer
from enginehouse_kit.checks.protocols import check_protocol
from enginehouse_kit.checks.rescheduling_checks import check_migrator, check_rescheduling_policy
from enginehouse_kit.checks.routing import check_filter, check_scorer, check_strategy
from enginehouse_kit.checks.scalers import check_scaler
from enginehouse_kit.checks.schedulers import check_scheduler
from enginehouse_kit.checks.surfaces import check_command, check_routes
from enginehouse_kit.checks.swappers import check_swapper
from enginehouse_kit.checks.usage_stores import check_usage_store

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


def check_type(kind: str, type: str, parameters: Mapping[str, Any] | None = None) -> None:
    """Run the conformance check of its kind on a registered type: ``check_type("scorer", "my_scorer")``.

    Raises ``AssertionError`` with the rule that the plugin breaks.
    """
    CHECKS[kind](partial(create, kind, type, parameters))


def check_without_effects(kind: str, factory: Callable[[], Any]) -> None:
    """Run the check of ``kind``, unless it starts processes, reaches other machines, or lets an observer write."""
    if kind not in WITH_EFFECTS:
        CHECKS[kind](factory)
