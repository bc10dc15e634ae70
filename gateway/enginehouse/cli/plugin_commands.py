"""Commands of plugins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from enginehouse.cli.output import warn
from enginehouse.domain.errors import ConfigError, EnginehouseError

if TYPE_CHECKING:
    from enginehouse.config.schema import PluginSettings
    from enginehouse.plugin_manager.registry import Registry

_HOOK = "register_commands"


class GroupWithPlugins(click.Group):
    """A group that adds the commands of installed plugins. Its own commands win over those of the same name.

    The root adds every command that is registered under one word; the group ``within`` adds those that are registered
    under its name and one word more, such as ``import llama-swap``.
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
            from enginehouse.plugin_manager.installed import registered_names

            if args[0] in self._own(registered_names(_HOOK)):
                ctx.fail(f"No such command '{args[0]}': its plugin is disabled, or cannot be used.")
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, without their help: that would import all of them.

        Reads them from the source of plugins, and imports nothing. It reads no configuration, so the commands of
        disabled plugins are among them.
        """
        from enginehouse.plugin_manager.installed import registered_names

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        known = {*self.commands, *self._own(registered_names(_HOOK))}
        found = sorted(name for name in known if name.startswith(incomplete))
        found = found or [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in found]

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
    """The commands that installed plugins register.

    The configuration, which is found without ``--config``, decides which plugins and with which parameters. Problems
    are warnings.
    """

    def __init__(self, own: Mapping[str, click.Command]) -> None:
        self._own = own
        self._settings, self._unread = _settings()
        self._registry: Registry | None = None
        self._made: dict[str, click.Command | None] = {}
        self._warned: set[str] = set()

    @cached_property
    def names(self) -> list[str]:
        """The names of all commands that can be used; imports only the plugins whose source names the hook."""
        registry = self._search(_HOOK)
        faults = {name: misplaced(name, self._own) for name in registry.types("command")}
        self._warn_of(registry.get("command", name).error(fault) for name, fault in faults.items() if fault)
        return [name for name, fault in faults.items() if not fault]

    def get(self, name: str) -> click.Command | None:
        """The command; ``None`` if there is none, or if its plugin cannot make it.

        Imports only the plugins whose source names both the hook and the command, unless they do not register it.
        """
        from enginehouse.plugin_manager.installed import bundled_factory

        if name in self._made:
            return self._made[name]
        if self._registry is None and (factory := bundled_factory(_HOOK, name, self._settings.disabled)):
            self._made[name] = factory()
            return self._made[name]
        registry = self._registry or self._search(_HOOK, name)
        if name not in registry.types("command"):
            registry = self._search()
        self._made[name] = self._make(name, registry) if name in registry.types("command") else None
        return self._made[name]

    def _search(self, *words: str) -> Registry:
        """Load the plugins whose source has all ``words``."""
        from enginehouse.plugin_manager.discovery import collect

        with redirect_stdout(sys.stderr):  # a plugin may print while it is imported
            loaded = collect(self._settings, words=words)
        self._warn_of([*self._unread, *loaded.problems])
        self._registry = loaded.registry
        return loaded.registry

    def _make(self, name: str, registry: Registry) -> click.Command | None:
        entry, parameters = registry.get("command", name), self._settings.parameters.get(name)
        try:
            with redirect_stdout(sys.stderr):
                command = registry.create("command", name, parameters, f"plugins.{name}")
            if not isinstance(command, click.Command):
                raise entry.error(f"the command '{name}' is not a click command: {command!r}")
        except EnginehouseError as error:
            warn(error)
            return None
        return command

    def _warn_of(self, problems: Iterable[EnginehouseError]) -> None:
        """Print a warning for each problem, once."""
        for problem in problems:
            if str(problem) not in self._warned:
                self._warned.add(str(problem))
                warn(problem)


def _settings() -> tuple[PluginSettings, list[ConfigError]]:
    """``[plugins]`` of the configuration; if it cannot be read, that of the bundled plugins alone, and the error."""
    from enginehouse.config.load_config import load_plugin_settings
    from enginehouse.config.schema import PluginSettings

    try:
        return load_plugin_settings(os.environ), []
    except ConfigError as error:
        return PluginSettings(enabled=[]), [ConfigError(f"commands of other plugins are not available: {error}")]
