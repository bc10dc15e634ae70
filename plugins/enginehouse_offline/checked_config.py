"""A configuration that a gateway would start with, for commands that show it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple

from enginehouse.app import rehearse_start
from enginehouse.config.load_config import LoadedConfig, find_document, read_document
from enginehouse.config.rules import hints
from enginehouse.config.schema import Config
from enginehouse.config.server import WorkerCount, worker_count
from enginehouse.plugin_manager.discovery import load_plugins
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
            settled = rehearse_start(loaded.config, found.registry)
    finally:
        logging.getLogger().removeHandler(heard)
    warnings = (*loaded.warnings, *(record.getMessage() for record in heard.buffer))
    return CheckedConfig(loaded.file, settled, warnings, len(found.plugins))
