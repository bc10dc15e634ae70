"""Commands of plugins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from enginehouse.cli.options import warn
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.plugin_manager.installed import InstalledCommand, installed_plugins

if TYPE_CHECKING:
    from enginehouse.config.schema import PluginSettings


class GroupWithPlugins(click.Group):
    """A group that adds the commands of installed plugins. Its own commands win over those of the same name.

    The root adds every command whose name is one word; the group ``within`` adds those whose name is its own and one
    word more, such as ``import llama-swap``.
    """

    def __init__(self, *arguments: Any, within: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._within = f"{within} " if within else ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self._own(_plugins(ctx).names)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (own := super().get_command(ctx, cmd_name)) or " " in cmd_name:
            return own
        return _plugins(ctx).get(self._within + cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_commands(ctx, formatter)
        if not self.list_commands(ctx):
            with formatter.section("Commands"):
                formatter.write_text("None: the plugin that has them is disabled, or cannot be used.")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if args[0] in self._own(_all_names()):
                ctx.fail(f"No such command '{args[0]}': its plugin is disabled, or cannot be used.")
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, without their help: that would import all of them.

        It reads no configuration, so the commands of disabled plugins are among them.
        """
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        known = {*self.commands, *self._own(_all_names())}
        return [CompletionItem(name) for name in sorted(known) if name.startswith(incomplete)]

    def _own(self, names: Iterable[str]) -> set[str]:
        """The last words of those ``names`` that belong to this group."""
        inner = (name.removeprefix(self._within) for name in names if name.startswith(self._within))
        return {name for name in inner if " " not in name}


def misplaced(name: str, commands: Mapping[str, click.Command]) -> str:
    """Why no plugin can register a command as ``name``, given our own ``commands``; empty if one can."""
    group, _, word = name.rpartition(" ")
    if group:
        within = commands.get(group)
        if not isinstance(within, GroupWithPlugins):
            return f"there is no group '{group}' that takes commands of plugins"
        commands = within.commands
    return f"there is already a command '{name}'" if word in commands else ""


def _plugins(ctx: click.Context) -> _PluginCommands:
    """The commands of plugins, found once for each run of the command line."""
    found = ctx.meta.get(__name__)
    if not isinstance(found, _PluginCommands):
        root = ctx.find_root().command
        found = ctx.meta[__name__] = _PluginCommands(root.commands if isinstance(root, click.Group) else {})
    return found


class _PluginCommands:
    """The commands of installed plugins.

    The configuration, which is found without ``--config``, decides which plugins and with which parameters. Problems
    are warnings.
    """

    def __init__(self, own: Mapping[str, click.Command]) -> None:
        self._own = own
        self._settings, self._unread = _settings()
        self._made: dict[str, click.Command | None] = {}

    @cached_property
    def names(self) -> list[str]:
        """The names of all commands that can be used. Imports none of them."""
        faults = {name: misplaced(name, self._own) for name in self._found}
        for problem in [
            *self._unread,
            *(self._found[name].origin.error(fault) for name, fault in faults.items() if fault),
        ]:
            warn(problem)
        return [name for name, fault in faults.items() if not fault]

    @cached_property
    def _found(self) -> Mapping[str, InstalledCommand]:
        """The commands of allowed plugins; if several have the same name, that of the first plugin."""
        plugins = [plugin for plugin in installed_plugins() if plugin.allowed(self._settings)]
        return {command.name: command for plugin in reversed(plugins) for command in plugin.commands}

    def get(self, name: str) -> click.Command | None:
        """The command; ``None`` if there is none, or if its plugin cannot make it."""
        if name not in self._made:
            self._made[name] = self._make(self._found[name]) if name in self._found else None
        return self._made[name]

    def _make(self, command: InstalledCommand) -> click.Command | None:
        try:
            with redirect_stdout(sys.stderr):  # a plugin may print while it is imported
                return command.make(self._settings.parameters.get(command.name))
        except EnginehouseError as error:
            warn(error)
            return None


def _all_names() -> Iterator[str]:
    """The names of all commands, those of disabled plugins included."""
    return (command.name for plugin in installed_plugins() for command in plugin.commands)


def _settings() -> tuple[PluginSettings, list[ConfigError]]:
    """``[plugins]`` of the configuration; if it cannot be read, that of the bundled plugins alone, and the error."""
    from enginehouse.config.load_config import load_plugin_settings
    from enginehouse.config.schema import PluginSettings

    try:
        return load_plugin_settings(os.environ), []
    except ConfigError as error:
        return PluginSettings(enabled=[]), [ConfigError(f"commands of other plugins are not available: {error}")]
