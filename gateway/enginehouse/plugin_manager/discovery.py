"""Finds installed plugins by their entry points and collects the types that they register.

pluggy has one plugin at a time, whose hooks are called once. From then on, its types are plain data in a ``Registry``.
So a plugin that fails leaves nothing behind and cannot affect another.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from types import ModuleType
from typing import Any

import msgspec
import pluggy

from enginehouse.config.parameters import closest
from enginehouse.config.schema import PluginSettings
from enginehouse.domain.errors import ConfigError, EnginehouseError, PluginError
from enginehouse.domain.foreign import defined_at, shown
from enginehouse.plugin_manager.installed import (
    COMMANDS,
    GROUP,
    InstalledPlugin,
    PluginOrigin,
    installed_plugins,
    may_have,
    unmet_requirement,
)
from enginehouse.plugin_manager.kinds import KINDS, Kind, factory_faults
from enginehouse.plugin_manager.registry import Registered, Registry

logger = logging.getLogger(__name__)

_WITH_HOOKS = [kind for kind in KINDS if kind.hook]
_HOOKS = [kind.hook for kind in _WITH_HOOKS]
_COMMANDS_NOW = f"name each command in [project.entry-points.'{COMMANDS}'], as in: hello = 'my_plugin.commands:hello'"
_NOT_LEFT_OUT = "; it may have an authenticator, so it is not left out: repair it, or name it in plugins.disabled"
_NEAR = 0.85
"""How alike a function's name is to a hook's that it was probably meant for (``difflib``'s ratio)."""


@dataclass(frozen=True, kw_only=True)
class BrokenPlugin(PluginOrigin):
    """An installed plugin that cannot be used."""

    problem: PluginError


class LoadedPlugins(msgspec.Struct, frozen=True):
    """The registered types, the plugins they come from, and the problems.

    ``disabled`` are the installed plugins that the settings exclude. ``unknown`` has an error for every name in
    ``plugins.enabled`` and ``plugins.disabled`` that is not installed.
    """

    registry: Registry
    plugins: tuple[PluginOrigin, ...]
    disabled: tuple[PluginOrigin, ...]
    broken: tuple[BrokenPlugin, ...]
    unknown: tuple[ConfigError, ...]

    @property
    def problems(self) -> tuple[EnginehouseError, ...]:
        return (*self.unknown, *(broken.problem for broken in self.broken))


def load_plugins(settings: PluginSettings) -> LoadedPlugins:
    """Load the plugins that ``settings`` allow.

    With ``on_error = "fail"``, raises the first problem: ``PluginError`` for a plugin that cannot be used,
    ``ConfigError`` for a name that no plugin has. With ``"skip"``, logs the problems and returns them, except for a
    plugin that may have an authenticator: without it, a gateway would let everyone in.
    """
    loaded = collect(settings)
    for broken in loaded.broken:
        if settings.on_error == "skip" and may_have(broken.module, "register_authenticators"):
            raise broken.error(f"{broken.problem.problem}{_NOT_LEFT_OUT}")
    for problem in loaded.problems:
        if settings.on_error == "fail":
            raise problem
        logger.warning("%s", problem)
    return loaded


def collect(settings: PluginSettings) -> LoadedPlugins:
    """``load_plugins`` that ignores ``on_error``: bundled plugins first, then the others by name."""
    found = installed_plugins()
    allowed = [each for each in found if each.allowed(settings)]
    disabled = [each.origin for each in found if not each.allowed(settings)]
    registry = Registry([each.entry_point for each in disabled])
    plugins: list[PluginOrigin] = []
    broken: list[BrokenPlugin] = []
    for each in allowed:
        if problem := _load(each, allowed, registry):
            broken.append(BrokenPlugin(**vars(each.origin), problem=problem))
        else:
            plugins.append(each.origin)
    unknown = tuple(_unknown_names(settings, found))
    return LoadedPlugins(registry, tuple(plugins), tuple(disabled), tuple(broken), unknown)


def _load(found: InstalledPlugin, allowed: Iterable[InstalledPlugin], registry: Registry) -> PluginError | None:
    """Add the types of one plugin to ``registry``, or return the reason why it cannot be used."""
    try:
        _refuse_shared_name(found.origin, allowed)
        _refuse_other_version(found)
        offered = _registered(found)
        registry.add(offered)
    except PluginError as problem:
        return problem
    return None


def _unknown_names(settings: PluginSettings, found: Iterable[InstalledPlugin]) -> Iterator[ConfigError]:
    known = list(dict.fromkeys(each.origin.entry_point for each in found))
    for key, names in (("plugins.enabled", settings.enabled or ()), ("plugins.disabled", settings.disabled)):
        for name in names:
            if name not in known:
                remedy = closest(name, known, "installed")
                yield ConfigError(f"no plugin '{name}' is installed", key=key, remedy=remedy)


def _refuse_shared_name(origin: PluginOrigin, allowed: Iterable[InstalledPlugin]) -> None:
    """Refuse a name that two plugins claim, unless ``origin`` is a bundled plugin: that one keeps its name."""
    if origin.bundled:
        return
    rivals = [
        each.origin for each in allowed if each.origin.entry_point == origin.entry_point and each.origin != origin
    ]
    if rivals:
        claimed = ", ".join(f"{rival.distribution} {rival.version}" for rival in rivals)
        raise origin.error(f"the entry point '{origin.entry_point}' is also claimed by {claimed}")


def _refuse_other_version(found: InstalledPlugin) -> None:
    """Refuse a plugin whose distribution requires a version of Enginehouse that is not the installed one."""
    if not found.origin.bundled and (unmet := unmet_requirement(found.point.dist)):
        raise found.origin.error(unmet)


def _registered(found: InstalledPlugin) -> Sequence[Registered]:
    """Import one plugin and call its hooks. Raises ``PluginError`` for every fault."""
    try:
        plugin = found.point.load()
    except (Exception, SystemExit) as error:
        raise found.origin.failure("cannot be imported:", error) from error
    manager = _manager()
    try:
        if isinstance(plugin, ModuleType) and not found.origin.bundled:
            _refuse_misspelt_hooks(plugin, found.origin)
        manager.register(plugin, found.origin.entry_point)
        manager.check_pending()
        return [*_offered(manager, plugin, found.origin), *_commands(found)]
    except pluggy.PluginValidationError as error:
        raise found.origin.error(" ".join(str(error).split())) from error
    finally:
        if manager.is_registered(plugin):
            manager.unregister(plugin)


def _refuse_misspelt_hooks(plugin: ModuleType, origin: PluginOrigin) -> None:
    """Refuse a function whose name is nearly that of a hook: pluggy ignores one without a mark, and suggests none."""
    package = origin.module.partition(".")[0]
    for name, value in vars(plugin).items():
        own = inspect.isfunction(value) and value.__module__.partition(".")[0] == package
        if own and name == "register_commands":
            raise origin.error(f"'{name}' is no hook any more: {_COMMANDS_NOW}{defined_at(value)}")
        if own and name not in _HOOKS and len(inspect.signature(value).parameters) <= 1:
            for hook in get_close_matches(name, _HOOKS, n=1, cutoff=_NEAR):
                raise origin.error(
                    f"'{name}' is not a hook: name it '{hook}' and mark it with '@{GROUP}.hookimpl'{defined_at(value)}"
                )


@cache
def _manager() -> pluggy.PluginManager:
    """Knows all hooks. It has one plugin at a time, so that each fault has its plugin."""
    manager = pluggy.PluginManager(GROUP)
    mark = pluggy.HookspecMarker(GROUP)
    manager.add_hookspecs(
        type("Hooks", (), {kind.hook: staticmethod(mark(lambda register: None)) for kind in _WITH_HOOKS})
    )
    return manager


def _offered(manager: pluggy.PluginManager, plugin: Any, origin: PluginOrigin) -> Iterator[Registered]:
    for kind in _WITH_HOOKS:
        hook = getattr(manager.hook, kind.hook)
        if hook.get_hookimpls():
            yield from _call(hook, kind, origin)
        elif hasattr(plugin, kind.hook):
            place = defined_at(getattr(plugin, kind.hook))
            raise origin.error(f"the hook '{kind.hook}' is not marked with '@enginehouse.hookimpl'{place}")


def _commands(found: InstalledPlugin) -> Iterator[Registered]:
    """The commands of one plugin. Each is imported when it is made."""
    for command in found.commands:
        yield Registered(**vars(found.origin), kind="command", type=command.name, factory=command.make)


def _call(hook: pluggy.HookCaller, kind: Kind, origin: PluginOrigin) -> Sequence[Registered]:
    if any("register" not in implementation.argnames for implementation in hook.get_hookimpls()):
        raise origin.error(f"the hook '{kind.hook}' must take the argument 'register'")
    offered: list[Registered] = []

    def register(type: str, factory: Any) -> None:
        if not isinstance(type, str) or not type:
            raise origin.error(f"the hook '{kind.hook}' must register under a name, got {shown(type)}")
        # a test looks at the bundled ones, which takes a twentieth of a start
        if not origin.bundled and (problems := "; ".join(factory_faults(kind, factory))):
            raise origin.error(f"the {kind.name} '{type}' cannot be used: {problems}{defined_at(factory)}")
        offered.append(Registered(**vars(origin), kind=kind.name, type=type, factory=factory))

    try:
        results = hook(register=register)
    except (Exception, SystemExit) as error:
        if isinstance(error, PluginError) and error.plugin == origin.entry_point:
            raise
        raise origin.failure(f"the hook '{kind.hook}' raised", error) from error
    if results:
        raise origin.error(f"the hook '{kind.hook}' must return nothing, got {shown(results[0])}")
    return offered
