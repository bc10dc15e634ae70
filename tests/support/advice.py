"""What the gateway warns of in a configuration."""

from __future__ import annotations

from enginehouse.app.plugin_instances import ConfiguredPlugins
from enginehouse.config.schema import Config
from enginehouse.plugin_manager.registry import Registry
from enginehouse_offline.advice import warnings


def advice(config: Config) -> tuple[str, ...]:
    """The warnings of ``config``."""
    return tuple(warnings(ConfiguredPlugins(lambda: config, Registry())))
