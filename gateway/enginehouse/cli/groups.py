"""The groups whose commands come from plugins: ``enginehouse import`` and ``enginehouse plugins``."""

from __future__ import annotations

import click

from enginehouse.cli.plugin_commands import GroupWithPlugins


@click.group("import", cls=GroupWithPlugins, within="import")
def import_configuration() -> None:
    """Convert another program's configuration."""


@click.group(cls=GroupWithPlugins, within="plugins")
def plugins() -> None:
    """List and check plugins, or write a new one."""
