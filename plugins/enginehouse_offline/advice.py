"""Settings that are valid but probably not intended."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address

from enginehouse import Exporter, Service
from enginehouse.backends import ModelSettings
from enginehouse.config.routing import Aliases, read_alias
from enginehouse.drivers import SupportsLoading
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse.services import Configured, ServiceGateway
from enginehouse.settings import did_you_mean, dotted

_LAUNCH_KEYS = (
    *("options", "args", "env", "host", "zone", "tier", "replicas", "priority", "weight", "role", "evict", "gpus"),
    *("kv_events", "keep_cache", "keep_cache_wait", "placement", "place_timeout", "stop_command", "health_path"),
)
"""The keys of a model that only concern an engine which is launched for it."""
_LOAD_KEYS = (
    *("ttl", "idle", "preload", "pin", "memory", "concurrency"),
    *("start_timeout", "start_silence", "stop_timeout"),
)
"""Those that also concern a server which loads the model when the gateway says so."""
_NO_LAUNCH = "without driver, path, source and command, no engine is launched"


class Advice(Service):
    """Names settings that are right, but probably not meant, as warnings."""

    table = "routing"

    def prepare(self, gateway: ServiceGateway) -> None:
        for text in warnings(gateway):
            gateway.warn(text)

    def start(self, gateway: ServiceGateway) -> None:
        """There is nothing to do while requests come."""


def warnings(config: Configured) -> list[str]:
    """One sentence for each setting that is valid but probably not intended."""
    return [
        *_without_effect(config),
        *_aliases_of_aliases(config),
        *([] if _engines_list_models(config) else _unknown_models(config)),
        *_unknown_backends(config),
        *_unreached_rules(config),
        *_versioned_urls(config),
        *_open_to_everyone(config),
        *_unexported(config),
    ]


def hints(config: Configured) -> list[str]:
    """One sentence for each setting that is right if an engine has what it names."""
    return [*_unknown_models(config)] if _engines_list_models(config) else []


def _engines_list_models(config: Configured) -> bool:
    """Whether there are models that only engines know."""
    backends = config.table("backends").values()
    return bool(config.table("discovery")) or any(backend.models is None for backend in backends)


def _aliases_of_aliases(config: Configured) -> Iterator[str]:
    aliases = config.table("routing").aliases
    for name, settings in aliases.items():
        for target in read_alias(settings).targets:
            if target in aliases:
                place = dotted(("routing", "aliases", name))
                yield f'{place}: "{target}" is an alias too, which is not resolved (name a model instead)'


def _unknown_models(config: Configured) -> Iterator[str]:
    routing, backends = config.table("routing"), config.table("backends").values()
    known = {*config.table("models"), *(name for backend in backends for name in backend.models or ())}
    aliases = Aliases(routing.aliases)
    named: dict[tuple[str, str], set[str]] = {
        ("routing", "aliases"): {
            target for settings in routing.aliases.values() for target in read_alias(settings).targets
        }
        - routing.aliases.keys(),
        ("routing", "rules"): {rule.model for rule in routing.rules if rule.model and not aliases.find(rule.model)},
        ("routing", "fallbacks"): {
            *(name for name in routing.fallbacks if not aliases.find(name)),
            *(name for chain in routing.fallbacks.values() for name in chain),
        },
        ("scheduling", "priorities"): set(config.table("scheduling").priorities),
    }
    for path, names in named.items():
        if unknown := sorted(names - known):
            listed = ", ".join(f'"{name}"' for name in unknown)
            said = "an engine must list it" if _engines_list_models(config) else "no backend lists models of its own"
            yield f"{dotted(path)}: not in this configuration, and {said}: {listed}"


def _unknown_backends(config: Configured) -> Iterator[str]:
    """Backends of rules that a discovery must find."""
    known = [*config.table("backends"), *(name for name, model in config.table("models").items() if model.launches)]
    for place, rule in enumerate(config.table("routing").rules):
        if unknown := [each for each in rule.backends if not _names_one(each, known)]:
            path = dotted(("routing", "rules", place, "backends"))
            hint = next(filter(None, (did_you_mean(each, known) for each in unknown)), "a discovery must find them")
            yield f"{path}: not in this configuration: {', '.join(unknown)} ({hint})"


def _names_one(pattern: str, known: Sequence[str]) -> bool:
    """Whether ``pattern`` matches a backend; the further replicas of a launched model are ``NAME-2``, ``NAME-3`` ..."""
    return any(fnmatchcase(name, pattern) or pattern.startswith(f"{name}-") for name in known)


def _unreached_rules(config: Configured) -> Iterator[str]:
    """Rules behind one that takes every request."""
    for place, rule in enumerate(config.table("routing").rules[:-1]):
        if not (rule.header or rule.key) and rule.weight >= 1:
            path = dotted(("routing", "rules", place))
            yield f"{path}: takes every request, so no later rule counts (name a header or a key, or make it the last)"
            return


def _versioned_urls(config: Configured) -> Iterator[str]:
    for name, backend in config.table("backends").items():
        if backend.url.rstrip("/").endswith("/v1"):
            yield f"{dotted(('backends', name, 'url'))}: ends in /v1, which the gateway adds (remove it)"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _open_to_everyone(config: Configured) -> Iterator[str]:
    server, auth = config.table("server"), config.table("auth")
    if auth.keys or auth.jwt is not None or _is_loopback(server.host):
        return
    yield (
        f"server.host: whoever reaches {server.host} may use every model and the operators' pages, because there are "
        "no keys (set auth.keys, or listen on 127.0.0.1 behind a proxy)"
    )


def _unexported(config: Configured) -> Iterator[str]:
    """OpenTelemetry's variable asks for traces that no plugin exports, and the configuration leaves that to it."""
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if config.table("telemetry").traces is not None or wanted in ("", "none"):
        return
    if not any(inspect.isclass(each) and issubclass(each, Exporter) for each in config.types("observer").values()):
        why = "no plugin that exports is installed; take 'otlp' out of plugins.disabled"
        yield f"OTEL_TRACES_EXPORTER={wanted} has no effect: {why}"


def _without_effect(config: Configured) -> Iterator[str]:
    """Warnings of keys that are set but have no effect."""
    rescheduling, default = config.table("rescheduling"), ReschedulingSettings()
    for key in () if rescheduling.enabled else default.__struct_fields__:
        if getattr(rescheduling, key) != getattr(default, key):
            yield f"rescheduling.{key} has no effect while rescheduling.enabled is false"
    told = dict.fromkeys(_LAUNCH_KEYS, _NO_LAUNCH)
    if not _may_load(config):
        told |= dict.fromkeys(_LOAD_KEYS, f"{_NO_LAUNCH}, and no backend loads models itself")
    for name, model in config.table("models").items():
        # a scaler may use a range of replicas: it tells others how many engines to start
        sized = () if isinstance(model.replicas, int) else ("replicas", "pin")
        for key, reason in () if model.launches else told.items():
            if key not in sized and getattr(model, key) != getattr(ModelSettings(), key):
                yield f"{dotted(('models', name, key))} has no effect: {reason}"


def _may_load(config: Configured) -> bool:
    """Whether the gateway may have a server load models: a backend that is configured, or that a discovery finds."""
    types = config.types("driver")
    drivers = [types.get(backend.driver) for backend in config.table("backends").values()]
    loads = any(inspect.isclass(each) and issubclass(each, SupportsLoading) for each in drivers)
    return loads or bool(config.table("discovery"))
