"""``enginehouse plugins list``, ``check`` and ``search``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse import ConfigError
from enginehouse.commands import config_option, warn
from enginehouse_kit.installed.check import CheckedPlugins, check_plugins
from enginehouse_kit.installed.listing import PluginState, Row, rows
from enginehouse_kit.output import print_json, print_table, printable
from enginehouse_kit.plugin_manager import PluginSettings, collect, configured_plugins, known_plugins

_WIDE = 1000
_COLORS = {PluginState.EMPTY: "yellow", PluginState.DISABLED: "dim", PluginState.BROKEN: "red"}


@click.command("list")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_plugins(config: Path | None, as_json: bool) -> None:
    """Print every registered type and its plugin.

    Then empty, disabled and broken plugins."""
    settings = _settings(config)
    with redirect_stdout(sys.stderr):  # a plugin may print while it is imported
        listed = rows(collect(settings))
    if as_json:
        print_json(msgspec.json.encode(listed))
        return
    console = Console()
    if not console.is_terminal:
        console.width = _WIDE  # whole lines for a pipe or a file
    console.print(_table(listed))
    for row in listed:
        if row.error:
            click.secho(f"{row.name} from {row.distribution} {row.version}: {row.error}", err=True, fg="red")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.pass_context
def check(context: click.Context, as_json: bool) -> None:
    """Load every plugin and run its conformance checks.

    The exit status is 1 if anything is wrong.

    Checks names, entry points, hooks, interfaces and constructors. Every type of a plugin that is not bundled is made
    without parameters, where it can be, and tried with the checks of `enginehouse_kit.testing`. Those that may start
    processes, reach other machines or write files, such as those of interceptors and services, are left to the plugin's
    tests; the output names such types.
    """
    root = context.find_root().command
    own = root.commands if isinstance(root, click.Group) else {}
    with redirect_stdout(sys.stderr):
        checked = check_plugins(own)
    if as_json:
        print_json(msgspec.json.encode(checked))
    else:
        _print_checked(checked)
    if checked.faults:
        sys.exit(1)


def _print_checked(checked: CheckedPlugins) -> None:
    for warning in checked.warnings:
        warn(warning)
    for fault in checked.faults:
        click.secho(str(fault), err=True, fg="red")
    if not checked.faults:
        click.echo(f"{_count(checked.plugins, 'plugin')}, {_count(checked.types, 'type')}: ok")
    if checked.untried:
        click.echo(f"Not tried, left to the tests of their plugins: {', '.join(checked.untried)}")


@click.command()
@click.argument("word", default="")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def search(word: str, as_json: bool) -> None:
    """Show known plugins that mention WORD."""
    found = [each for each in known_plugins() if word.lower() in f"{each.name} {each.about} {each.types}".lower()]
    if as_json:
        print_json(msgspec.json.encode(found))
        return
    rows = [(each.name, ", ".join(each.types), each.about, each.source) for each in found]
    empty = f"No known plugin has '{word}'; write one: enginehouse plugins new NAME"
    print_table(("plugin", "brings", "about", "from"), rows, empty=empty)


def _settings(config: Path | None) -> PluginSettings:
    """``[plugins]`` of the configuration. One that cannot be read is a warning, unless ``--config`` names it."""
    try:
        return configured_plugins(config)
    except ConfigError as error:
        if config is not None:
            raise
        warn(f"the configuration is ignored: {error}")
        return PluginSettings()


def _table(listed: Sequence[Row]) -> Table:
    table = Table()
    for heading in ("kind", "type", "plugin", "distribution", "version", "state"):
        table.add_column(heading, overflow="fold")
    for row in listed:
        origin = "bundled" if row.bundled else row.distribution
        cells = (row.kind or "", row.type or "", row.name, origin, row.version, row.state.value)
        table.add_row(*map(printable, cells), style=_COLORS.get(row.state))
    return table


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
