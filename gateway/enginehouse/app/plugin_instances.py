"""Makes instances of registered types, with their parameters from ``[plugins]``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from enginehouse.app.findings import Findings
from enginehouse.config.parameters import PluginTable, check_names, plugin_table, plugin_tables
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError, EnginehouseError, PluginError
from enginehouse.domain.names import did_you_mean
from enginehouse.domain.plugin_id import PluginId
from enginehouse.plugin_manager.kinds import KINDS
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.relay.upstream.outside import Outside

T = TypeVar("T")
_log = logging.getLogger(__name__)
_NAMES = [kind.name for kind in KINDS]
_IMPORTED_LATE = "command"
"""The kind whose parameters are checked when it is used: a gateway does not import commands."""
COMPAT = "compat."
"""The types of routes that stand for another program begin so."""


def identity(registry: Registry, kind: str, type: str, key: str = "") -> PluginId:
    """The identity of a registered type, which the configuration key ``key`` names. Bundled ones are trusted."""
    entry = registry.get(kind, type, key)
    return PluginId(kind, type, entry.entry_point, trusted=entry.bundled)


def create(
    config: Config,
    registry: Registry,
    kind: str,
    type: str,
    key: str = "",
    own: Mapping[str, Any] | None = None,
    own_table: str = "",
) -> Any:
    """An instance of ``type`` with its parameters. ``key``: the configuration key that names the type.

    ``own``: parameters of this instance, which win over those in ``[plugins]``; they stand in the table ``own_table``,
    by default in ``parameters`` below ``key``.
    """
    table = plugin_table(config.plugins, kind, type)
    shared = table.parameters
    if shared and not table.kind and not _takes_parameters(registry, kind, type):
        shared = {}
    if own:
        return registry.create(kind, type, {**shared, **own}, key, own_table or f"{key}.parameters")
    return registry.create(kind, type, shared, key, table.key)


def prepare(registry: Registry, kind: str, type: str, how: Callable[[], T], problem: str = "") -> T:
    """Let an instance of ``type`` prepare itself with ``how``. Returns what that returns.

    Raises the ``EnginehouseError`` that it raises, and ``PluginError`` with the ``problem`` for any other exception.
    """
    try:
        return how()
    except EnginehouseError:
        raise
    except (Exception, SystemExit) as error:
        problem = problem or f"the {kind.replace('_', ' ')} '{type}' cannot be prepared:"
        raise registry.get(kind, type).failure(problem, error) from error


_prepare = prepare  # an argument of ``Configured.plugin`` has this name, too


class ConfiguredPlugins:
    """The ``Configured`` of ``config``, which is asked each time, with migrators as they are ``outside``."""

    def __init__(self, config: Callable[[], Config], registry: Registry, outside: Outside | None = None) -> None:
        self._config = config
        self._registry = registry
        self._outside = outside or Outside()

    def table(self, name: str) -> Any:
        return getattr(self._config(), name)

    def types(self, kind: str) -> Mapping[str, Any]:
        return self._registry.factories(kind)

    def plugin(
        self,
        kind: str,
        type: str,
        key: str,
        parameters: Mapping[str, Any] | None = None,
        prepare: Callable[[Any], None] | None = None,
    ) -> tuple[PluginId, Any]:
        table = key.rpartition(".")[0]
        try:
            made = create(self._config(), self._registry, kind, type, key, parameters, table)
        except ConfigError as error:
            if error.key:
                raise
            raise ConfigError(error.problem, key=table, remedy=error.remedy) from None
        if kind == "migrator":
            made = self._outside.migrator(type, made)
        if prepare is not None:
            _prepare(self._registry, kind, type, partial(prepare, made))
        return identity(self._registry, kind, type), made


def routes_of_plugins(config: Config, registry: Registry, *, of_compat: bool) -> Sequence[str]:
    """The types of routes that the gateway has: those ``of_compat`` that ``[compat]`` wants, or all others."""
    if of_compat:
        return [COMPAT + name for name, wanted in config.compat.items() if wanted]
    return [type for type in registry.types("routes") if not type.startswith(COMPAT)]


def protocols_of_plugins(config: Config, registry: Registry) -> Sequence[str]:
    """The types of protocols that the gateway has: all but those that ``[compat]`` does not want."""
    wanted = [COMPAT + name for name, wanted in config.compat.items() if wanted]
    return [type for type in registry.types("protocol") if not type.startswith(COMPAT) or type in wanted]


def create_installed(
    config: Config, registry: Registry, kind: str, types: Sequence[str] | None = None
) -> Iterator[tuple[PluginId, Any]]:
    """An instance of every type of ``kind``, or of ``types`` only.

    With ``plugins.on_error = "skip"``, a type whose instance cannot be made is left out, with a warning.
    """
    for type in registry.types(kind) if types is None else types:
        try:
            made = create(config, registry, kind, type)
        except PluginError as error:  # noqa: PERF203 - runs at start
            skip_or_raise(config, error)
        else:
            yield identity(registry, kind, type), made


def create_each(
    config: Config, registry: Registry, kind: str, findings: Findings, types: Sequence[str] | None = None
) -> Iterator[tuple[PluginId, Any]]:
    """``create_installed``, with the errors of all in ``findings``."""
    for type in registry.types(kind) if types is None else types:
        yield from findings.collect(lambda: [*create_installed(config, registry, kind, [type])]) or ()  # noqa: B023


def find_only(config: Config, registry: Registry, kind: str, does: str) -> tuple[PluginId, Any] | None:
    """An instance of the only installed type of ``kind``; ``None`` if there is none.

    Raises ``PluginError`` if there are several; ``does``: what both do.
    """
    made = list(create_installed(config, registry, kind))
    if len(made) > 1:
        names = " and ".join(str(plugin) for plugin, _ in made)
        raise PluginError(f"{names} both {does}: disable the plugin of one of them")
    return made[0] if made else None


def skip_or_raise(config: Config, error: PluginError) -> None:
    """Log that a plugin is left out, where ``plugins.on_error`` is ``"skip"``; else raise ``error``."""
    if config.plugins.on_error == "fail":
        raise error
    _log.warning('%s; it is left out (plugins.on_error = "skip")', error)


def check_parameters(config: Config, registry: Registry) -> None:
    """Raise ``ConfigErrors``, or the only ``ConfigError``, for tables and parameters that no installed type has.

    They would silently do nothing.
    """
    findings = Findings()
    for table in plugin_tables(config.plugins, _NAMES):
        with findings.collecting():
            _check_table(table, registry, findings)
    findings.check()


def _check_table(table: PluginTable, registry: Registry, findings: Findings) -> None:
    kinds = [table.kind] if table.kind else _NAMES
    known = sorted({type for kind in kinds for type in registry.types(kind)})
    if table.type not in known:
        raise ConfigError(
            f"no plugin registers a {table.kind or 'type'} '{table.type}'",
            key=table.key,
            remedy=did_you_mean(table.type, known) or "install the plugin or remove the table",
        )
    if not isinstance(table.parameters, Mapping):
        raise ConfigError(
            f"is not a table: '{table.kind}' is a kind of plugins",
            key=table.key,
            remedy=f"write the parameters into [plugins.{table.kind}.TYPE]",
        )
    having = [kind for kind in kinds if kind != _IMPORTED_LATE and table.type in registry.types(kind)]
    if having:
        _check_names(table, [registry.get(kind, table.type) for kind in having], findings)


def _check_names(table: PluginTable, entries: Sequence[Registered], findings: Findings) -> None:
    """Find the parameters that none of ``entries`` has: not each of them is made at start."""
    configs = [getattr(entry.factory, "Config", None) for entry in entries]
    known = {name for config in configs if config for name in config.__struct_encode_fields__}
    owner, config = next(((each, had) for each, had in zip(entries, configs, strict=True) if had), (entries[0], None))
    for name in table.parameters:
        if name not in known:
            with findings.collecting():
                check_names(config, [name], table=table.key, owner=str(owner))


def _takes_parameters(registry: Registry, kind: str, type: str) -> bool:
    """Whether a table shared by several kinds is for this one too: all kinds without parameters leave it to others."""
    if type not in registry.types(kind) or hasattr(registry.get(kind, type).factory, "Config"):
        return True
    return not any(
        hasattr(registry.get(other, type).factory, "Config")
        for other in _NAMES
        if other != kind and type in registry.types(other)
    )
