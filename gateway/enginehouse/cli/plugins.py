"""``enginehouse plugins``: what is installed, whether it fits, and how to begin a new one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enginehouse.config.schema import Plugins
from enginehouse.plugin_manager.discovery import Loaded, collect
from enginehouse.plugin_manager.listing import Row, rows
from enginehouse.plugin_manager.naming import name_faults
from enginehouse.plugin_manager.scaffold import write_plugin


@click.group()
def plugins() -> None:
    """List, check and begin plugins."""


@plugins.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_plugins(as_json: bool) -> None:
    """Print every registered type and the plugin it comes from."""
    listed = rows(_collect())
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=2))
        return
    Console().print(_table(listed))
    for row in listed:
        if row.error:
            click.secho(f"{row.name} from {row.distribution} {row.version}: {row.error}", err=True, fg="red")


@plugins.command()
def check() -> None:
    """Load every plugin and check interfaces and names; exit status 1 if anything is wrong."""
    loaded = _collect()
    faults = [*map(str, loaded.problems), *_name_faults(loaded)]
    for fault in faults:
        click.secho(fault, err=True, fg="red")
    if faults:
        sys.exit(1)
    click.echo(f"{_count(len(loaded.plugins), 'plugin')}, {_count(len(loaded.registry.all()), 'type')}: ok")


@plugins.command()
@click.argument("name")
@click.option(
    "--directory",
    "-d",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where to put the plugin's folder; here if left out.",
)
def new(name: str, directory: Path) -> None:
    """Write the first files of the plugin NAME: a distribution that installs and passes its own test."""
    folder = write_plugin(name.removeprefix("enginehouse-"), directory)
    click.echo(f"{folder}\ntry: cd {folder} && pip install --editable . --group dev && pytest")


def _collect() -> Loaded:
    """Every installed plugin; what one prints while it is imported must not end up in our output."""
    with redirect_stdout(sys.stderr):
        return collect(Plugins())


def _name_faults(loaded: Loaded) -> Iterator[str]:
    for plugin in loaded.plugins:
        for fault in name_faults(plugin):
            yield str(plugin.error(fault))


def _table(listed: Sequence[Row]) -> Table:
    table = Table("kind", "type", "plugin", "distribution", "version")
    for row in listed:
        origin = "bundled" if row.bundled else row.distribution
        kind, type = (row.kind, row.type) if row.kind and row.type else ("[red]broken[/red]", "")
        table.add_row(kind, escape(type), escape(row.name), escape(origin), escape(row.version))
    return table


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
