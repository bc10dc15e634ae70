"""The commands that plugins add."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import redirect_stdout
from typing import cast

import click

from enginehouse.cli.output import warn
from enginehouse.config.load import load_config
from enginehouse.config.schema import Plugins
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.plugin_manager.discovery import collect

_COMMANDS = "enginehouse.cli.plugin_commands"


class GroupWithPlugins(click.Group):
    """A group with the commands of installed plugins besides its own, which win over those of the same name.

    Plugins are loaded when somebody asks for a command that is not ours, or for all of them; the configuration that is
    found without ``--config`` says which, and their parameters. What is wrong with one is a warning.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted({*self.commands, *self._added(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        return super().get_command(ctx, cmd_name) or self._added(ctx).get(cmd_name)

    def _added(self, ctx: click.Context) -> Mapping[str, click.Command]:
        if _COMMANDS not in ctx.meta:
            with redirect_stdout(sys.stderr):  # what a plugin prints while it is imported is no output of ours
                ctx.meta[_COMMANDS] = dict(_commands(self.commands))
        return cast(Mapping[str, click.Command], ctx.meta[_COMMANDS])


def _commands(taken: Collection[str]) -> Iterator[tuple[str, click.Command]]:
    try:
        settings = load_config(None, os.environ).config.plugins
    except ConfigError as error:
        warn(f"commands of plugins are left out: {error}")
        return
    yield from _registered(settings, taken)


def _registered(settings: Plugins, taken: Collection[str]) -> Iterator[tuple[str, click.Command]]:
    loaded = collect(settings)
    for problem in loaded.problems:
        warn(problem)
    for name in loaded.registry.types("command"):
        entry = loaded.registry.get("command", name)
        try:
            if name in taken:
                raise entry.error(f"there is already a command '{name}'")
            command = loaded.registry.create("command", name, settings.parameters.get(name), f"plugins.{name}")
            if not isinstance(command, click.Command):
                raise entry.error(f"the command '{name}' is no click command: {command!r}")
        except EnginehouseError as error:
            warn(error)
        else:
            yield name, command
