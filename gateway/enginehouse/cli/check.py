"""``enginehouse check``: validates the configuration and prints what is in effect."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import click

from enginehouse.app import rehearse_start
from enginehouse.app.build_router import settle
from enginehouse.cli.options import config_option
from enginehouse.cli.output import warn
from enginehouse.config.load_config import LoadedConfig, load_config
from enginehouse.config.page import page
from enginehouse.config.render import effective, effective_data
from enginehouse.config.schema import Config
from enginehouse.config.worker_count import worker_count
from enginehouse.domain.errors import ConfigError, ConfigErrors, PluginError
from enginehouse.plugin_manager.discovery import load_plugins


@click.command()
@config_option
@click.option("--all", "in_full", is_flag=True, help="Print default values too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, also for an invalid configuration.")
def check(config: Path | None, in_full: bool, as_json: bool) -> None:
    """Check the configuration and print it with masked secrets.

    It comes from the file and the environment.

    Refuses what `serve` refuses: it loads all plugins and builds the whole gateway, but starts nothing.

    Warnings and errors go to standard error, a line each; the exit status is 1 when there are errors.
    """
    try:
        loaded, plugins = _checked(load_config(config, os.environ))
    except (ConfigError, PluginError) as error:
        if as_json:
            _print_json({"ok": False, "errors": _as_data(error)})
        raise
    for warning in loaded.warnings:
        warn(warning)
    if as_json:
        file = str(loaded.file) if loaded.file else None
        shown = effective_data(loaded.config)
        workers = worker_count(loaded.config.server)
        why = {"workers": {"number": workers.number, "why": workers.why}}
        _print_json({"ok": True, "file": file, "warnings": loaded.warnings, **why, "config": shown})
    elif in_full:
        click.echo(effective(loaded.config), nl=False)
    else:
        click.echo(f"# {_verdict(loaded)}")
        click.echo(f"# Built without starting anything: {_built(loaded.config, plugins)}.")
        click.echo(f"# {_workers(loaded.config)}.")
        click.echo("# What differs from the defaults; `enginehouse check --all` prints everything.\n")
        click.echo(page(loaded.config), nl=False)


def _verdict(loaded: LoadedConfig) -> str:
    name = loaded.file or "There is no configuration file, and the environment"
    warnings = len(loaded.warnings)
    return f"{name} has no errors" + (f", and {_count(warnings, 'warning')}." if warnings else ".")


def _built(config: Config, plugins: int) -> str:
    launched = sum(model.launches for model in config.models.values())
    parts = (
        _count(len(config.backends), "backend"),
        f"{_count(launched, 'model')} to launch",
        _count(len(config.routing.aliases), "alias", "aliases"),
        _count(plugins, "plugin"),
        f"strategy {config.routing.strategy}",
        f"scheduler {config.scheduling.scheduler}",
        f"swapper {config.scheduling.swapper}",
    )
    return ", ".join(parts)


def _workers(config: Config) -> str:
    """How many processes will serve, and why."""
    found = worker_count(config.server)
    if found.number == 1:
        return f"One process will serve: {found.why}"
    return f"An owner and {found.number} workers will serve: {found.why}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _checked(loaded: LoadedConfig) -> _Checked:
    """``loaded`` as a gateway would use it, with all warnings. Raises ``ConfigError`` or ``PluginError``."""
    heard = _Heard()
    logging.getLogger().addHandler(heard)
    try:
        found = load_plugins(loaded.config.plugins)
        rehearse_start(loaded.config, found.registry)
    except ConfigError as error:
        raise error.located(str(loaded.file) if loaded.file else "") from None
    finally:
        logging.getLogger().removeHandler(heard)
    warnings = (*loaded.warnings, *heard.messages)
    settled = settle(loaded.config, found.registry)[0]
    return _Checked(loaded._replace(config=settled, warnings=warnings), len(found.plugins))


class _Checked(NamedTuple):
    """A configuration that a gateway would start with, and the number of its plugins."""

    loaded: LoadedConfig
    plugins: int


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
