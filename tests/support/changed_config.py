"""Puts another configuration in force, as a reload does, in one step."""

from __future__ import annotations

from enginehouse.app import Gateway
from enginehouse.app.config_change import ConfigChange
from enginehouse.app.services.service_runner import ServiceRuns
from enginehouse.config.schema import Config


def prepare(gateway: Gateway, config: Config) -> tuple[ConfigChange, ServiceRuns]:
    """What a reload of ``config`` puts in force. Raises ``ConfigError`` or ``PluginError``."""
    change, services = gateway.reloader.begin(config)
    change.work_out()
    change.complete()
    return change, services


def reconfigure(gateway: Gateway, config: Config) -> None:
    """Put ``config`` in force. Raises ``ConfigError`` or ``PluginError``."""
    gateway.reloader.carry_out(*prepare(gateway, config))
