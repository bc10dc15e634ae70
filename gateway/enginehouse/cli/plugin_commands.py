"""Commands of plugins."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, cast

import click
from click.shell_completion import CompletionItem

from enginehouse.cli.output import warn
from enginehouse.domain.errors import ConfigError, EnginehouseError

if TYPE_CHECKING:
    from enginehouse.config.schema import PluginSettings

_COMMANDS = "enginehouse.cli.plugin_commands"


class GroupWithPlugins(click.Group):
    """A group that adds the commands of installed plugins. Its own commands win over those of the same name.

    The list of all commands imports only the plugins whose source names the hook for commands. A command that the group
    lacks imports all plugins. The configuration, which it finds without ``--config``, decides which plugins and with
    which parameters. A broken plugin is a warning.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self._added(ctx, hook="register_commands")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self._added(ctx).get(cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, without their help: that would import all of them."""
        own = [CompletionItem(name) for name in sorted(self.commands) if name.startswith(incomplete)]
        if own or incomplete.startswith("-"):
            return own or click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]

    def _added(self, ctx: click.Context, *, hook: str = "") -> Mapping[str, click.Command]:
        if _COMMANDS not in ctx.meta:
            with redirect_stdout(sys.stderr):  # a plugin may print while it is imported
                ctx.meta[_COMMANDS] = dict(_commands(self.commands, hook))
        return cast(Mapping[str, click.Command], ctx.meta[_COMMANDS])


def _commands(taken: Collection[str], hook: str) -> Iterator[tuple[str, click.Command]]:
    from enginehouse.config.load import load_config

    try:
        settings = load_config(None, os.environ).config.plugins
    except ConfigError as error:
        warn(f"commands of plugins are not available: {error}")
        return
    yield from _registered(settings, taken, hook)


def _registered(settings: PluginSettings, taken: Collection[str], hook: str) -> Iterator[tuple[str, click.Command]]:
    from enginehouse.plugin_manager.discovery import collect

    loaded = collect(settings, hook=hook)
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
