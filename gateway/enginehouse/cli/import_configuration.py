"""``enginehouse import``: converts configurations of other programs. Each of its commands comes from a plugin."""

from __future__ import annotations

import click

from enginehouse.cli.plugin_commands import GroupWithPlugins


@click.group("import", cls=GroupWithPlugins, within="import")
def import_configuration() -> None:
    """Convert another program's configuration."""
