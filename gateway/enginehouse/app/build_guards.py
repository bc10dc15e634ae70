"""Makes the guards that ``guards`` names."""

from __future__ import annotations

from collections.abc import Iterator

from enginehouse.app.plugin_instances import create, identity
from enginehouse.config.schema import Config, GuardSettings
from enginehouse.interfaces.guards import Guard
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.guarding.guards import GuardInForce, Guards


def build_guards(config: Config, registry: Registry) -> Guards | None:
    """All guards; ``None`` if there are none. Raises ``ConfigError`` or ``PluginError``."""
    made = list(_guards(config, registry))
    return Guards(made) if made else None


def _guards(config: Config, registry: Registry) -> Iterator[GuardInForce]:
    for number, named in enumerate(config.guards):
        settings = GuardSettings(type=named) if isinstance(named, str) else named
        guard: Guard = create(config, registry, "guard", settings.type, f"guards[{number}]", settings.parameters)
        plugin = identity(registry, "guard", settings.type)
        yield GuardInForce(plugin, guard, settings.timeout, settings.on_error == "pass")
