"""Finding plugins at start: the loop over entry points, and what each of them registered.

pluggy collects: every plugin gets a manager of its own, its hooks are called once, and what they registered is plain
data from there on. So a plugin that fails leaves nothing behind and cannot touch another.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
import pluggy

from enginehouse import hookspecs
from enginehouse.config.schema import Plugins
from enginehouse.domain.errors import ConfigError, EnginehouseError, PluginError
from enginehouse.plugin_manager.kinds import KINDS, Kind, factory_faults
from enginehouse.plugin_manager.registry import Origin, Registered, Registry, closest, describe

GROUP = "enginehouse"

logger = logging.getLogger(__name__)


class Broken(Origin, frozen=True, kw_only=True):
    """A plugin that was found and cannot be used."""

    problem: PluginError


class Loaded(msgspec.Struct, frozen=True):
    """The outcome: what was registered, by which plugins, and what went wrong.

    ``unknown`` are names in ``plugins.enabled`` and ``plugins.disabled`` that no installed plugin has.
    """

    registry: Registry
    plugins: tuple[Origin, ...]
    broken: tuple[Broken, ...]
    unknown: tuple[ConfigError, ...]

    @property
    def problems(self) -> tuple[EnginehouseError, ...]:
        """Everything that went wrong."""
        return (*self.unknown, *(broken.problem for broken in self.broken))


class _Found(msgspec.Struct, frozen=True):
    origin: Origin
    entry_point: EntryPoint


def load_plugins(settings: Plugins) -> Loaded:
    """Load the plugins that ``settings`` allow.

    With ``on_error = "fail"`` the first problem is raised: ``PluginError`` for a plugin that cannot be used,
    ``ConfigError`` for a name that no plugin has. With ``"skip"`` problems are logged and kept in the answer.
    """
    loaded = collect(settings)
    for problem in loaded.problems:
        if settings.on_error == "fail":
            raise problem
        logger.warning("%s", problem)
    return loaded


def collect(settings: Plugins) -> Loaded:
    """Load what ``settings`` allow, whatever ``on_error`` says: bundled plugins first, then the others by name."""
    found = sorted(_find(), key=lambda each: (not each.origin.bundled, each.origin.entry_point))
    allowed = [each for each in found if _allowed(each.origin, settings)]
    registry = Registry()
    plugins: list[Origin] = []
    broken: list[Broken] = []
    for each in allowed:
        if problem := _load(each, allowed, registry):
            broken.append(Broken(**msgspec.structs.asdict(each.origin), problem=problem))
        else:
            plugins.append(each.origin)
    return Loaded(registry, tuple(plugins), tuple(broken), tuple(_unknown_names(settings, found)))


def _load(found: _Found, allowed: Iterable[_Found], registry: Registry) -> PluginError | None:
    """Add what one plugin registers, or say why it cannot be used."""
    try:
        _refuse_shared_name(found.origin, allowed)
        registry.add(_registered(found))
    except PluginError as problem:
        return problem
    return None


def _find() -> Iterator[_Found]:
    for entry_point in entry_points(group=GROUP):
        distribution = entry_point.dist
        assert distribution is not None, "entry points of an environment have a distribution"
        origin = Origin(
            entry_point=entry_point.name,
            module=entry_point.module,
            distribution=distribution.name,
            version=distribution.version,
        )
        yield _Found(origin, entry_point)


def _allowed(origin: Origin, settings: Plugins) -> bool:
    name = origin.entry_point
    return name not in settings.disabled and (origin.bundled or settings.enabled is None or name in settings.enabled)


def _unknown_names(settings: Plugins, found: Iterable[_Found]) -> Iterator[ConfigError]:
    known = list(dict.fromkeys(each.origin.entry_point for each in found))
    for key, names in (("plugins.enabled", settings.enabled or ()), ("plugins.disabled", settings.disabled)):
        for name in names:
            if name not in known:
                remedy = closest(name, known, "installed")
                yield ConfigError(f"no plugin '{name}' is installed", key=key, remedy=remedy)


def _refuse_shared_name(origin: Origin, allowed: Iterable[_Found]) -> None:
    """A bundled plugin keeps its name; of the others, nobody gets a name that is claimed twice."""
    if origin.bundled:
        return
    rivals = [
        each.origin for each in allowed if each.origin.entry_point == origin.entry_point and each.origin != origin
    ]
    if rivals:
        claimed = ", ".join(f"{rival.distribution} {rival.version}" for rival in rivals)
        raise origin.error(f"the entry point '{origin.entry_point}' is also claimed by {claimed}")


def _registered(found: _Found) -> Sequence[Registered]:
    """What one plugin registers. Raises ``PluginError`` for whatever is wrong with it."""
    try:
        plugin = found.entry_point.load()
    except (Exception, SystemExit) as error:
        raise found.origin.error(f"cannot be imported: {describe(error)}") from error
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, found.origin.entry_point)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise found.origin.error(" ".join(str(error).split())) from error
    offered: list[Registered] = []
    for kind in KINDS:
        hook = getattr(manager.hook, kind.hook)
        if hook.get_hookimpls():
            offered += _call(hook, kind, found.origin)
        elif hasattr(plugin, kind.hook):
            raise found.origin.error(f"the hook '{kind.hook}' is not marked with '@enginehouse.hookimpl'")
    return offered


def _call(hook: pluggy.HookCaller, kind: Kind, origin: Origin) -> Sequence[Registered]:
    """Call one hook of one plugin."""
    if any("register" not in implementation.argnames for implementation in hook.get_hookimpls()):
        raise origin.error(f"the hook '{kind.hook}' must take the argument 'register'")
    offered: list[Registered] = []

    def register(type: str, factory: Any) -> None:
        if not isinstance(type, str) or not type:
            raise origin.error(f"the hook '{kind.hook}' must register under a name, got {type!r}")
        if problems := "; ".join(factory_faults(kind, factory)):
            raise origin.error(f"the {kind.name} '{type}' cannot be used: {problems}")
        offered.append(Registered(**msgspec.structs.asdict(origin), kind=kind.name, type=type, factory=factory))

    try:
        results = hook(register=register)
    except (Exception, SystemExit) as error:
        if isinstance(error, PluginError) and error.plugin == origin.entry_point:
            raise
        raise origin.error(f"the hook '{kind.hook}' raised {describe(error)}") from error
    if results:
        raise origin.error(f"the hook '{kind.hook}' must return nothing, got {results[0]!r}")
    return offered
