"""A configuration that a gateway would start with, for commands that show it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple

from enginehouse import ConfigError
from enginehouse.app import rehearse_start
from enginehouse.config.load_config import LoadedConfig, find_document, read_document
from enginehouse.config.rules import hints
from enginehouse.config.schema import Config
from enginehouse.config.server import WorkerCount, worker_count
from enginehouse.domain.errors import ConfigErrors
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.settings import dotted
from enginehouse_offline.all_errors import check_all
from enginehouse_offline.render import changed, effective, effective_data


class CheckedConfig(NamedTuple):
    """``file``: ``None`` without one. ``warnings``: all of them. ``plugins``: how many are loaded."""

    file: Path | None
    config: Config
    warnings: tuple[str, ...]
    plugins: int

    @property
    def written(self) -> dict[str, Any]:
        """The configuration as in a file, with masked secrets."""
        return effective_data(self.config)

    @property
    def toml(self) -> str:
        """``written``, as TOML."""
        return effective(self.config)

    @property
    def changed(self) -> dict[str, Any]:
        """What of ``written`` differs from the defaults."""
        return changed(self.written)

    @property
    def hints(self) -> Sequence[str]:
        """What is right if an engine has it: no warnings."""
        return hints(self.config)

    @property
    def workers(self) -> WorkerCount:
        """How many processes would serve."""
        return worker_count(self.config.server)


def check_config(file: Path | None) -> CheckedConfig:
    """Build a gateway as ``serve`` does, and start nothing.

    Raises all errors that keep it from starting: ``ConfigError``, ``ConfigErrors`` or ``PluginError``.
    """
    environ = dict(os.environ)
    document, found = find_document(file, environ)
    return check_all(lambda data: _checked(read_document(data, found, environ)), document, environ)


def _checked(loaded: LoadedConfig) -> CheckedConfig:
    heard = BufferingHandler(sys.maxsize)  # a full one would drop what it has
    logging.getLogger().addHandler(heard)
    try:
        with loaded.naming_file():
            found = load_plugins(loaded.config.plugins)
            settled = _rehearse(loaded.config, found.registry)
    finally:
        logging.getLogger().removeHandler(heard)
    warnings = (*loaded.warnings, *(record.getMessage() for record in heard.buffer))
    return CheckedConfig(loaded.file, settled, warnings, len(found.plugins))


def _rehearse(config: Config, registry: Registry) -> Config:
    """The configuration in use. Raises what keeps a gateway from starting, and all further types that no plugin has."""
    try:
        return rehearse_start(config, registry)
    except ConfigError as first:
        others = [error for error in _unknown_types(config, registry) if str(error) != str(first)]
        if not others:
            raise
        raise ConfigErrors([first, *others]) from None


def _unknown_types(config: Config, registry: Registry) -> Iterator[ConfigError]:
    for kind, type, *path in _named_types(config):
        try:
            registry.get(kind, type, dotted(tuple(path)))
        except ConfigError as error:  # noqa: PERF203 - of each
            yield error


def _named_types(config: Config) -> Iterator[tuple[str, ...]]:
    """The kind, the type and the path of what the configuration names in its own tables."""
    for name, backend in config.backends.items():
        yield "driver", backend.driver, "backends", name, "driver"
    for name, model in config.models.items():
        if model.driver:
            yield "driver", model.driver, "models", name, "driver"
    for name, host in config.hosts.items():
        yield "launcher", host.launcher, "hosts", name, "launcher"
    for name, source in config.discovery.items():
        yield "discoverer", source.type, "discovery", name, "type"
    for each in config.routing.filters or ():
        yield "filter", each, "routing", "filters"
    yield "scheduler", config.scheduling.scheduler, "scheduling", "scheduler"
    yield "swapper", config.scheduling.swapper, "scheduling", "swapper"
    default = Config()  # the plugins of these defaults may be disabled if nothing needs them
    if config.scheduling.scaler != default.scheduling.scaler:
        yield "scaler", config.scheduling.scaler, "scheduling", "scaler"
    if config.limits.store != default.limits.store:
        yield "limit_store", config.limits.store, "limits", "store"
    if config.usage.store not in ("", "none"):
        yield "usage_store", config.usage.store, "usage", "store"
    if config.rescheduling.enabled:
        for each in config.rescheduling.policies:
            yield "rescheduling_policy", each, "rescheduling", "policies"
        for each in config.rescheduling.migrators:
            yield "migrator", each, "rescheduling", "migrators"
    for name in config.service_tables:
        yield "service", name, *config.service_path(name)
