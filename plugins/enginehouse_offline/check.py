"""``enginehouse check``: validates the configuration and prints what is in effect."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from enginehouse import ConfigError, PluginError
from enginehouse.commands import config_option, warn
from enginehouse_offline.render import page

if TYPE_CHECKING:
    from enginehouse_offline.checked_config import CheckedConfig


@click.command()
@config_option
@click.option("--all", "in_full", is_flag=True, help="Print default values too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, also for an invalid configuration.")
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
def check(config: Path | None, in_full: bool, as_json: bool, strict: bool) -> None:
    """Check the configuration and print it with masked secrets.

    It comes from the file and the environment.

    It refuses what `serve` refuses: it loads all plugins and builds the whole gateway, but starts nothing.

    Warnings and all errors go to standard error, a line each; the exit status is 1 when there are errors, or with
    --strict warnings.
    """
    from enginehouse_offline.checked_config import check_config  # the whole gateway, which the help does not need

    try:
        checked = check_config(config)
    except (ConfigError, PluginError) as error:
        if as_json:
            _print_json({"ok": False, "errors": error.rows()})
        raise
    for warning in checked.warnings:
        warn(warning)
    for hint in checked.hints:
        click.echo(f"note: {hint}", err=True)
    refused = strict and bool(checked.warnings)
    if as_json:
        file = str(checked.file) if checked.file else None
        why = {"workers": checked.workers._asdict()}
        _print_json({"ok": not refused, "file": file, "warnings": checked.warnings, **why, "config": checked.written})
    elif in_full:
        click.echo(checked.toml, nl=False)
    else:
        click.echo(f"# {_verdict(checked)}")
        click.echo(f"# Built without starting anything: {_built(checked)}.")
        click.echo(f"# {_workers(checked)}.")
        click.echo(
            "# The main settings, and what differs from the defaults; `enginehouse check --all` prints everything.\n"
        )
        click.echo(page(checked.written, checked.changed), nl=False)
    if refused:
        sys.exit(1)


def _verdict(checked: CheckedConfig) -> str:
    name = checked.file or "There is no configuration file, and the environment"
    warnings = len(checked.warnings)
    return f"{name} has no errors" + (f", and {_count(warnings, 'warning')}." if warnings else ".")


def _built(checked: CheckedConfig) -> str:
    config = checked.config
    launched = sum(model.launches for model in config.models.values())
    parts = (
        _count(len(config.backends), "backend"),
        f"{_count(launched, 'model')} to launch",
        _count(len(config.routing.aliases), "alias", "aliases"),
        _count(checked.plugins, "plugin"),
        f"strategy {config.routing.strategy}",
        f"scheduler {config.scheduling.scheduler}",
        f"swapper {config.scheduling.swapper}",
    )
    return ", ".join(parts)


def _workers(checked: CheckedConfig) -> str:
    """How many processes will serve, and why."""
    found = checked.workers
    if found.number == 1:
        return f"One process will serve: {found.why}"
    return f"An owner and {found.number} workers will serve: {found.why}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _print_json(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False, default=str))
