"""``enginehouse check``: is this configuration usable, and what does it come to?"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import msgspec

from enginehouse.app import build_swapper
from enginehouse.cli.options import config_option
from enginehouse.cli.output import warn
from enginehouse.config.load import Loaded, load_config
from enginehouse.config.render import effective, effective_data
from enginehouse.domain.errors import ConfigError, ConfigErrors
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.scheduling.facts import host_facts, host_names


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, also when something is wrong.")
def check(config: Path | None, as_json: bool) -> None:
    """Check the configuration and print the effective one, with defaults and environment, secrets masked.

    Warnings and errors go to standard error, a line each; the exit status is 1 when there are errors.
    """
    try:
        loaded = load_config(config, os.environ)
        _check_swapping(loaded)
    except ConfigError as error:
        if as_json:
            _print_json({"ok": False, "errors": [_as_data(one) for one in _each(error)]})
        raise
    for warning in loaded.warnings:
        warn(warning)
    if as_json:
        file = str(loaded.file) if loaded.file else None
        shown = effective_data(loaded.config)
        _print_json({"ok": True, "file": file, "warnings": loaded.warnings, "config": shown})
    else:
        click.echo(effective(loaded.config), nl=False)


def _check_swapping(loaded: Loaded) -> None:
    """Have a bundled swapper read its rules for every host; those of other plugins are read when these are loaded."""
    config = loaded.config
    registry = load_plugins(msgspec.structs.replace(config.plugins, enabled=[])).registry
    if config.scheduling.swapper not in registry.types("swapper"):
        return
    try:
        for host in host_names(config):
            build_swapper(config, registry, host_facts(config, host))
    except ConfigError as error:
        file = str(loaded.file) if loaded.file else ""
        raise ConfigError(error.problem, file=file, key=error.key, remedy=error.remedy) from None


def _each(error: ConfigError) -> tuple[ConfigError, ...]:
    return error.errors if isinstance(error, ConfigErrors) else (error,)


def _as_data(error: ConfigError) -> dict[str, str]:
    return {"file": error.file, "key": error.key, "problem": error.problem, "remedy": error.remedy}


def _print_json(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False, default=str))
