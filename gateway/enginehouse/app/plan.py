"""A configuration as a gateway uses it, checked: for its start, a rehearsal of that, and every change."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from enginehouse.app.build import build_drivers, check_launch_lines
from enginehouse.app.build_router import settle
from enginehouse.app.plugin_instances import check_parameters
from enginehouse.config.schema import Config
from enginehouse.domain.replica import Role
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.strategies import Strategy
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.outside import Outside

_log = logging.getLogger(__name__)
_OTHER = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}


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
    for warning in _of_roles(settled, drivers, registry):
        _log.warning("%s", warning)
    return GatewayPlan(settled, drivers, warnings)


def _of_roles(config: Config, drivers: Mapping[str, DriverSupport], registry: Registry) -> Iterator[str]:
    """Warnings of the roles prefill and decode if no request would find an engine of each."""
    strategy = config.routing.strategy
    pairs_up = (
        getattr(registry.get("strategy", strategy, "routing.strategy").factory, "pick_decode", None)
        is not Strategy.pick_decode
    )
    for type, driver in drivers.items():
        keys = _keys_by_role(config, type) if driver.hand_over is not None else {}
        if len(keys) == 1 and driver.bootstrap is not None:
            [role] = keys
            missing = f"none has the role '{_OTHER[role].value}'"
            yield f"{_joined(keys)}: a server of {type} with this role serves no request alone, and {missing}"
        elif len(keys) > 1 and not pairs_up:
            alone = (
                "which serves none alone"
                if driver.bootstrap is not None
                else "which reads the prompt and answers alone"
            )
            remedy = (
                f"set routing.strategy to {_that_pair_up(registry) or 'one that pairs them, which a plugin brings'}"
            )
            yield f"{_joined(keys)}: '{strategy}' sends each request to one server, {alone}; {remedy}"


def _joined(keys: Mapping[Role, Sequence[str]]) -> str:
    return ", ".join(key for each in keys.values() for key in each)


def _keys_by_role(config: Config, driver: str) -> dict[Role, Sequence[str]]:
    """The keys that set the roles of the backends of ``driver``. Neutral ones are left out."""
    tables = [(f"backends.{name}", each.driver, each.role) for name, each in config.backends.items()]
    tables += [
        (f"models.{name}", each.engine_driver, each.role) for name, each in config.models.items() if each.launches
    ]
    keys: dict[Role, list[str]] = {}
    for table, type, role in tables:
        if type == driver and role is not Role.NEUTRAL:
            keys.setdefault(role, []).append(f"{table}.role")
    return dict(keys)


def _that_pair_up(registry: Registry) -> str:
    """The strategies that may have one engine read the prompt and another one answer."""
    types = registry.types("strategy")
    methods = {type: getattr(registry.get("strategy", type).factory, "pick_decode", None) for type in types}
    return " or ".join(f"'{type}'" for type, method in methods.items() if method not in (None, Strategy.pick_decode))
