"""The command line."""

from __future__ import annotations

import sys

import click

from enginehouse.cli.check import check
from enginehouse.cli.drain import drain, undrain
from enginehouse.cli.explain import explain
from enginehouse.cli.import_llama_swap import import_configuration
from enginehouse.cli.load import load, unload
from enginehouse.cli.logs import logs
from enginehouse.cli.models import models
from enginehouse.cli.move import move
from enginehouse.cli.plugin_commands import GroupWithPlugins
from enginehouse.cli.plugins import plugins
from enginehouse.cli.reload import reload
from enginehouse.cli.run import run
from enginehouse.cli.schema import schema
from enginehouse.cli.serve import serve
from enginehouse.cli.status import status
from enginehouse.domain.errors import EnginehouseError


@click.group(cls=GroupWithPlugins, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="enginehouse")
def enginehouse() -> None:
    """A plugin-based gateway for inference engines."""


def main() -> None:
    """Run the command line. An ``EnginehouseError`` becomes a message on standard error and exit status 1."""
    try:
        enginehouse(prog_name="enginehouse")
    except EnginehouseError as error:
        click.secho(f"enginehouse: {error}", err=True, fg="red")
        sys.exit(1)


_COMMANDS = (
    check,
    drain,
    explain,
    import_configuration,
    load,
    logs,
    models,
    move,
    plugins,
    reload,
    run,
    schema,
    serve,
    status,
    undrain,
    unload,
)
for _command in _COMMANDS:
    enginehouse.add_command(_command)
