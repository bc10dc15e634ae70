"""``enginehouse plugins new``."""

from __future__ import annotations

from pathlib import Path

import click

from enginehouse_kit.plugin_manager import KINDS
from enginehouse_kit.scaffold import write_plugin


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    "kinds",
    metavar="KIND,...",
    default="filter",
    show_default=True,
    help=f"The kinds that the plugin registers: {', '.join(kind.name for kind in KINDS)}.",
)
@click.option(
    "--directory",
    "-d",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where to create the plugin's folder; else in the current directory.",
)
def new(name: str, kinds: str, directory: Path) -> None:
    """Write the first files of the plugin NAME.

    They are a distribution that installs and passes its own tests."""
    folder = write_plugin(name.removeprefix("enginehouse-"), directory, [kind.strip() for kind in kinds.split(",")])
    click.echo(f"{folder}\ntry: cd {folder} && pip install --editable '.[test]' && pytest")
