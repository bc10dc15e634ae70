"""Puts another configuration in force, as a reload does, in one step."""

from __future__ import annotations

from enginehouse.app import Gateway
from enginehouse.app.reload import PreparedReload
from enginehouse.config.schema import Config


def prepare(gateway: Gateway, config: Config) -> PreparedReload:
    """What a reload of ``config`` puts in force. Raises ``ConfigError`` or ``PluginError``."""
    prepared = gateway.reloader.begin(config)
    prepared.change.work_out()
    gateway.reloader.complete(prepared)
    return prepared


def reconfigure(gateway: Gateway, config: Config) -> None:
    """Put ``config`` in force. Raises ``ConfigError`` or ``PluginError``."""
    gateway.reloader.carry_out(prepare(gateway, config))
