"""The command line."""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec

import click

from enginehouse.cli.lazy_commands import LazyCommands
from enginehouse.cli.plugin_commands import GroupWithPlugins
from enginehouse.domain.errors import EnginehouseError

_COMMANDS = {
    "import": "enginehouse.cli.groups:import_configuration",
    "plugins": "enginehouse.cli.groups:plugins",
    "serve": "enginehouse.cli.serve:serve",
}
_KIND = "compiled" if find_spec("enginehouse__mypyc") is not None else "pure Python"
"""``tools/compiled.py`` makes that library."""


@click.group(
    cls=GroupWithPlugins,
    commands=LazyCommands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="enginehouse", message=f"%(prog)s, version %(version)s, {_KIND}")
def enginehouse() -> None:
    """A plugin-based gateway for inference engines."""


def main() -> None:
    """Run the command line. An ``EnginehouseError`` becomes a message on standard error and exit status 1."""
    gc.set_threshold(200_000, 20, 50)  # by default, collections while modules are imported take an eighth of the start
    try:
        enginehouse(prog_name="enginehouse")
    except EnginehouseError as error:
        click.secho(f"enginehouse: {error}", err=True, fg="red")
        sys.exit(1)
