"""Puts another configuration in force, as a reload does, in one step."""

from __future__ import annotations

from enginehouse.app import Gateway
from enginehouse.app.config_change import ConfigChange
from enginehouse.config.schema import Config


def prepare(gateway: Gateway, config: Config) -> ConfigChange:
    """The change to ``config``, complete. Raises ``ConfigError`` or ``PluginError``."""
    change = gateway.reloader.begin(config)
    change.work_out()
    gateway.reloader.complete(change)
    return change


def reconfigure(gateway: Gateway, config: Config) -> None:
    """Put ``config`` in force. Raises ``ConfigError`` or ``PluginError``."""
    gateway.reloader.carry_out(prepare(gateway, config))
