"""A configuration as a gateway uses it, checked: for its start, a rehearsal of that, and every change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginehouse.app.build import build_drivers, check_launch_lines
from enginehouse.app.build_router import settle
from enginehouse.app.plugin_instances import check_parameters
from enginehouse.app.role_warnings import warn_of_roles
from enginehouse.config.schema import Config
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.outside import Outside


class GatewayPlan(NamedTuple):
    """``config``: settled. ``drivers``: those that it uses, by type. ``warnings``: of keys without effect."""

    config: Config
    drivers: dict[str, DriverSupport]
    warnings: Sequence[str]


def make_plan(config: Config, registry: Registry, outside: Outside, before: Mapping[str, DriverSupport]) -> GatewayPlan:
    """Check ``config`` and make its drivers; those of ``before`` stay in use. Starts nothing.

    Raises ``ConfigError`` or ``PluginError`` for parameters that no plugin has, for drivers that cannot be made, and
    for launch lines that would fail later.
    """
    check_parameters(config, registry)
    settled, warnings = settle(config, registry)
    drivers = build_drivers(settled, registry, before, outside)
    check_launch_lines(settled, drivers, registry)
    warn_of_roles(settled, drivers, registry)
    return GatewayPlan(settled, drivers, warnings)
