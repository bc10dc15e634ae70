"""The command line."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click

from enginehouse.cli.options import config_option, take_over_option
from enginehouse.cli.plugin_commands import GroupWithPlugins
from enginehouse.domain.compiled import COMPILED
from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.names import escaped

_FORM = "compiled" if COMPILED else "pure Python"


@click.group(cls=GroupWithPlugins, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="enginehouse", message=f"%(prog)s, version %(version)s, {_FORM}")
def enginehouse() -> None:
    """A plugin-based gateway for inference engines."""


@enginehouse.group(cls=GroupWithPlugins, within="explain")
def explain() -> None:
    """Explain decisions.

    They need no running gateway, but can ask one."""


@enginehouse.group("import", cls=GroupWithPlugins, within="import")
def import_configuration() -> None:
    """Convert another program's configuration."""


@enginehouse.group(cls=GroupWithPlugins, within="plugins")
def plugins() -> None:
    """List and check plugins, or write a new one."""


@enginehouse.command("serve")
@config_option
@click.option("--host", help="Address to listen on, instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on, instead of server.port; 0 picks one.")
@click.option("--watch", is_flag=True, help="Reload the configuration when its file changes, as server.watch does.")
@take_over_option
def serve_command(config: Path | None, host: str | None, port: int | None, watch: bool, take_over: bool) -> None:
    """Run the gateway.

    Without any configuration, it serves two simulated models.

    On SIGHUP, the gateway reloads its configuration. On SIGUSR2, it starts this program again to take over.
    """
    from enginehouse.processes.serve import serve_file  # takes longer to import than most commands take to run

    serve_file(config, host=host, port=port, watch=watch, take_over=take_over)


def main() -> None:
    """Run the command line. An ``EnginehouseError`` becomes a message on standard error and exit status 1."""
    gc.set_threshold(200_000, 20, 50)  # by default, collections while modules are imported take an eighth of the start
    try:
        enginehouse(prog_name="enginehouse")
    except EnginehouseError as error:
        click.secho(f"enginehouse: {escaped(str(error))}", err=True, fg="red")
        sys.exit(1)
