"""Finds the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_config_path

from enginehouse.config.environment import CONFIG_FILE
from enginehouse.domain.errors import ConfigError

FILE_NAME = "enginehouse.toml"


def find_config(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The first of ``file``, ``$ENGINEHOUSE_CONFIG``, ``./enginehouse.toml`` and the user's; ``None`` if there is none.

    Raises ``ConfigError`` if ``file`` or the variable names a file that does not exist.
    """
    named = environ.get(CONFIG_FILE)
    asked = file or (Path(named).expanduser() if named else None)
    if asked is not None:
        if not asked.exists():
            by = CONFIG_FILE if file is None else "--config"
            raise ConfigError("there is no such file", file=str(asked), remedy=f"create it, or change {by}")
        return asked
    usual = (Path(FILE_NAME), user_config_path("enginehouse", appauthor=False) / FILE_NAME)
    return next((path for path in usual if path.is_file()), None)
