"""``enginehouse check``: validates the configuration and prints the effective one."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import click

from enginehouse.app import rehearse_start
from enginehouse.app.build_router import settle
from enginehouse.cli.options import config_option
from enginehouse.cli.output import warn
from enginehouse.config.load import LoadedConfig, load_config
from enginehouse.config.render import effective, effective_data
from enginehouse.domain.errors import ConfigError, ConfigErrors, PluginError
from enginehouse.plugin_manager.discovery import load_plugins


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, also when something is wrong.")
def check(config: Path | None, as_json: bool) -> None:
    """Check the configuration and print the effective one, with defaults and environment, secrets masked.

    Refuses what `serve` refuses: it loads all plugins and builds the whole gateway, but starts nothing.

    Warnings and errors go to standard error, a line each; the exit status is 1 when there are errors.
    """
    try:
        loaded = _checked(load_config(config, os.environ))
    except (ConfigError, PluginError) as error:
        if as_json:
            _print_json({"ok": False, "errors": _as_data(error)})
        raise
    for warning in loaded.warnings:
        warn(warning)
    if as_json:
        file = str(loaded.file) if loaded.file else None
        shown = effective_data(loaded.config)
        _print_json({"ok": True, "file": file, "warnings": loaded.warnings, "config": shown})
    else:
        click.echo(effective(loaded.config), nl=False)


def _checked(loaded: LoadedConfig) -> LoadedConfig:
    """``loaded`` as a gateway would use it, with all warnings. Raises ``ConfigError`` or ``PluginError``."""
    heard = _Heard()
    logging.getLogger().addHandler(heard)
    try:
        registry = load_plugins(loaded.config.plugins).registry
        rehearse_start(loaded.config, registry)
    except ConfigError as error:
        raise error.located(str(loaded.file) if loaded.file else "") from None
    finally:
        logging.getLogger().removeHandler(heard)
    warnings = (*loaded.warnings, *heard.messages)
    return loaded._replace(config=settle(loaded.config, registry)[0], warnings=warnings)


class _Heard(logging.Handler):
    """Keeps the warnings that the gateway logs while it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _as_data(error: ConfigError | PluginError) -> list[dict[str, str]]:
    if isinstance(error, PluginError):
        return [{"file": "", "key": "", "problem": str(error), "remedy": ""}]
    each = error.errors if isinstance(error, ConfigErrors) else (error,)
    return [{"file": one.file, "key": one.key, "problem": one.problem, "remedy": one.remedy} for one in each]


def _print_json(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False, default=str))
