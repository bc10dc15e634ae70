"""What a configuration needs of plugins: without them, it would silently do nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from enginehouse.app.plugin_instances import COMPAT
from enginehouse.config.schema import BackendSettings, Config, LimitSettings, ModelSettings, ReplicaRange
from enginehouse.config.shape import Path, dotted
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.names import did_you_mean
from enginehouse.domain.replica import Role
from enginehouse.interfaces.accounting import Accounting
from enginehouse.interfaces.drivers import SupportsHandOver, SupportsLoading
from enginehouse.plugin_manager.registry import Registered, Registry


def unmet_needs(config: Config, registry: Registry) -> Iterator[ConfigError]:
    """An error for each type that ``config`` names and no enabled plugin has, and for each key that none acts on.

    Raises ``PluginError`` for a service whose table the configuration does not have.
    """
    tables = {service_table(registry, type) for type in registry.types("service")}
    for table, path, plugin in _of_services(config, registry):
        if table not in tables:
            yield _unmet("no service of an enabled plugin does this", path, plugin)
    if not registry.types("continuer"):
        for path in _of_continuers(config):
            yield _unmet("no enabled plugin continues streams", path, "continuation")
    if not registry.types("hand_over"):
        for path in _of_hand_overs(config, registry):
            yield _unmet("no enabled plugin has one engine read prompts for another one", path, "pairs")
    if accounting_type(registry) is None:
        for path in _of_accounting(config):
            yield _unmet("no enabled plugin counts requests", path, "callers")
    interceptors = registry.factories("interceptor").values()
    if config.guards and not any(getattr(each, "table", "") == "guards" for each in interceptors):
        yield _unmet("no enabled plugin asks guards", ("guards",), "guards")
    if "progress" not in registry.types("observer"):
        for path in _of_progress(config):
            yield _unmet("no plugin reports progress", path, "progress")
    if config.telemetry.access_log and "access_log" not in registry.types("observer"):
        yield _unmet("no plugin writes the access log", ("telemetry", "access_log"), "access_log")
    if config.telemetry.push_metrics and "metrics" not in registry.types("routes"):
        yield _unmet("no enabled plugin measures the gateway", ("telemetry", "push_metrics"), "metrics")
    if config.routing.mirrors and "mirrors" not in registry.types("observer"):
        yield _unmet("no enabled plugin sends copies of requests", ("routing", "mirrors"), "mirrors")
    known = [type.removeprefix(COMPAT) for type in registry.types("routes") if type.startswith(COMPAT)]
    for name in (name for name in config.compat if name not in known):
        remedy = did_you_mean(name, known) or "install its plugin or remove the key"
        yield ConfigError(f"no plugin answers the paths of '{name}'", key=dotted(("compat", name)), remedy=remedy)
    for kind, type, path in _named_types(config):
        try:
            registry.get(kind, type, dotted(path))
        except ConfigError as error:  # noqa: PERF203 - of each
            yield error


def unmet_by(name: str, backend: BackendSettings, registry: Registry) -> str:
    """Why no enabled plugin serves a found backend as it wants to be served; empty if one does."""
    keys = dotted(("backends", name)) + "."
    errors = unmet_needs(Config(backends={name: backend}), registry)
    return next((f"{each.problem}: {each.remedy}" for each in errors if each.key.startswith(keys)), "")


def service_table(registry: Registry, type: str) -> str:
    """The table of the configuration that a service reads, besides ``[services.TYPE]``; empty if there is none.

    Raises ``PluginError`` if the configuration has no such table.
    """
    entry = registry.get("service", type)
    table: str = getattr(entry.factory, "table", "")
    if table and table not in Config.__struct_fields__:
        raise entry.error(f"the service '{type}' reads the table '{table}', which the configuration does not have")
    return table


def accounting_type(registry: Registry) -> Registered | None:
    """The installed type of authenticator that counts requests, the first if there are several."""
    entries = (registry.get("authenticator", type) for type in registry.types("authenticator"))
    return next((each for each in entries if _makes(each, Accounting)), None)


def _makes(entry: Registered, wanted: type) -> bool:
    return inspect.isclass(entry.factory) and issubclass(entry.factory, wanted)


def _unmet(problem: str, path: Path, plugin: str) -> ConfigError:
    return ConfigError(problem, key=dotted(path), remedy=f"enable the plugin '{plugin}', or remove the key")


def _of_services(config: Config, registry: Registry) -> Iterator[tuple[str, Path, str]]:
    """The tables that ask for a service: the table that it reads, the key, and the bundled plugin that has it."""
    loading = {type for type in registry.types("driver") if _makes(registry.get("driver", type), SupportsLoading)}
    for name, backend in config.backends.items():
        if backend.driver in loading:
            yield "backends", ("backends", name, "driver"), "remote"
    for name in config.discovery:
        yield "discovery", ("discovery", name), "discovery"
    if config.rescheduling.enabled:
        yield "rescheduling", ("rescheduling", "enabled"), "rescheduling"
    for name, model in config.models.items():
        if isinstance(model.replicas, ReplicaRange):
            yield "scheduling", ("models", name, "replicas"), "scaling"
        if model.keep_cache not in (0, ModelSettings().keep_cache):
            yield "models", ("models", name, "keep_cache"), "kept_caches"


def _of_continuers(config: Config) -> Iterator[Path]:
    """The keys that ask for a continuer. ``routing.broken_stream`` is ``continue`` by default, so it does not."""
    if config.routing.gather:
        yield "routing", "gather"
    if config.routing.broken_stream == "restart":
        yield "routing", "broken_stream"
    for name, model in config.models.items():
        if model.broken_stream in ("continue", "restart"):
            yield "models", name, "broken_stream"
    if config.rescheduling.enabled:
        yield "rescheduling", "enabled"


def _of_hand_overs(config: Config, registry: Registry) -> Iterator[Path]:
    """The keys that have one engine read prompts for another one."""
    types = {type for type in registry.types("driver") if _makes(registry.get("driver", type), SupportsHandOver)}
    yield from (path for path, driver, _ in roles_of(config) if driver in types)
    if config.rescheduling.enabled and config.rescheduling.adaptive_pd:
        yield "rescheduling", "adaptive_pd"


def roles_of(config: Config) -> Iterator[tuple[Path, str, Role]]:
    """The keys of all roles but the neutral one, and the types of the drivers."""
    for name, backend in config.backends.items():
        if backend.role is not Role.NEUTRAL:
            yield ("backends", name, "role"), backend.driver, backend.role
    for name, model in config.models.items():
        if model.launches and model.role is not Role.NEUTRAL:
            yield ("models", name, "role"), model.engine_driver, model.role


def _of_progress(config: Config) -> Iterator[Path]:
    if config.scheduling.progress != "off":
        yield "scheduling", "progress"
    for name, model in config.models.items():
        if model.progress not in (None, "off"):
            yield "models", name, "progress"


def _of_accounting(config: Config) -> Iterator[Path]:
    """The keys that need accounting: without it, the gateway would not count requests."""
    if config.server.per_address:
        yield "server", "per_address"
    if config.limits != LimitSettings():
        yield "limits", "store"
    if config.usage.store not in ("", "none"):
        yield "usage", "store"


def _named_types(config: Config) -> Iterator[tuple[str, str, Path]]:
    """The kind, the type and the path of what the configuration names in its own tables.

    Defaults are left out whose plugin may be disabled while nothing needs it.
    """
    default = Config()
    for name, backend in config.backends.items():
        yield "driver", backend.driver, ("backends", name, "driver")
    for name, model in config.models.items():
        if model.driver:
            yield "driver", model.driver, ("models", name, "driver")
    for name, host in config.hosts.items():
        yield "launcher", host.launcher, ("hosts", name, "launcher")
    for name, source in config.discovery.items():
        yield "discoverer", source.type, ("discovery", name, "type")
    for table, kind in (("interceptors", "interceptor"), ("guards", "guard")):
        for number, chosen in enumerate(getattr(config, table)):
            yield kind, chosen if isinstance(chosen, str) else chosen.type, (table, number)
    for number, scorer in enumerate(config.routing.scorers):
        yield "scorer", scorer.type, ("routing", "scorers", number)
    for each in config.routing.filters or ():
        yield "filter", each, ("routing", "filters")
    yield "scheduler", config.scheduling.scheduler, ("scheduling", "scheduler")
    yield "swapper", config.scheduling.swapper, ("scheduling", "swapper")
    if config.scheduling.scaler != default.scheduling.scaler:
        yield "scaler", config.scheduling.scaler, ("scheduling", "scaler")
    if config.auth.keys or config.auth.jwt or config.server.per_address or config.limits != default.limits:
        yield "limit_store", config.limits.store, ("limits", "store")
    if config.auth.keys:
        yield "authenticator", "key", ("auth", "keys")
    if config.auth.jwt is not None:
        yield "authenticator", "jwt", ("auth", "jwt")
    if config.usage.store not in ("", "none"):
        yield "usage_store", config.usage.store, ("usage", "store")
    if config.rescheduling.enabled:
        for each in config.rescheduling.policies:
            yield "rescheduling_policy", each, ("rescheduling", "policies")
        for each in config.rescheduling.migrators:
            yield "migrator", each, ("rescheduling", "migrators")
    for name in config.service_tables:
        yield "service", name, config.service_path(name)
