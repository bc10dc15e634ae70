"""The command line."""

from __future__ import annotations

import sys

import click

from enginehouse.cli.check import check
from enginehouse.cli.plugins import plugins as plugins_group
from enginehouse.cli.schema import schema
from enginehouse.cli.serve import serve
from enginehouse.domain.errors import EnginehouseError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="enginehouse")
def enginehouse() -> None:
    """A plugin-based gateway for inference engines."""


def main() -> None:
    """Run the command line; an error of ours is one line on standard error and exit status 1."""
    try:
        enginehouse()
    except EnginehouseError as error:
        click.secho(f"enginehouse: {error}", err=True, fg="red")
        sys.exit(1)


enginehouse.add_command(plugins_group)
enginehouse.add_command(check)
enginehouse.add_command(schema)
enginehouse.add_command(serve)
