"""Settings that are valid but probably not intended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address

from enginehouse.config.aliases import Aliases, read_alias
from enginehouse.config.schema import Config
from enginehouse.config.shape import Path, dotted
from enginehouse.domain.names import did_you_mean


def warnings(config: Config) -> list[str]:
    """One sentence for each such setting."""
    return [
        *_aliases_of_aliases(config),
        *([] if _engines_list_models(config) else _unknown_models(config)),
        *_unknown_backends(config),
        *_unreached_rules(config),
        *_versioned_urls(config),
        *_open_to_everyone(config),
    ]


def hints(config: Config) -> list[str]:
    """One sentence for each setting that is right if an engine has what it names."""
    return [*_unknown_models(config)] if _engines_list_models(config) else []


def _engines_list_models(config: Config) -> bool:
    """Whether there are models that only engines know."""
    return bool(config.discovery) or any(backend.models is None for backend in config.backends.values())


def _aliases_of_aliases(config: Config) -> Iterator[str]:
    aliases = config.routing.aliases
    for name, settings in aliases.items():
        for target in read_alias(settings).targets:
            if target in aliases:
                place = dotted(("routing", "aliases", name))
                yield f'{place}: "{target}" is an alias too, which is not resolved (name a model instead)'


def _unknown_models(config: Config) -> Iterator[str]:
    known = {*config.models, *(name for backend in config.backends.values() for name in backend.models or ())}
    routing = config.routing
    aliases = Aliases(routing.aliases)
    named: dict[Path, set[str]] = {
        ("routing", "aliases"): {
            target for settings in routing.aliases.values() for target in read_alias(settings).targets
        }
        - routing.aliases.keys(),
        ("routing", "rules"): {rule.model for rule in routing.rules if rule.model and not aliases.find(rule.model)},
        ("routing", "fallbacks"): {
            *routing.fallbacks,
            *(name for chain in routing.fallbacks.values() for name in chain),
        },
        ("scheduling", "priorities"): set(config.scheduling.priorities),
    }
    for path, names in named.items():
        if unknown := sorted(names - known):
            listed = ", ".join(f'"{name}"' for name in unknown)
            said = "an engine must list it" if _engines_list_models(config) else "no backend lists models of its own"
            yield f"{dotted(path)}: not in this configuration, and {said}: {listed}"


def _unknown_backends(config: Config) -> Iterator[str]:
    """Backends of rules that a discovery must find."""
    known = [*config.backends, *(name for name, model in config.models.items() if model.launches)]
    for place, rule in enumerate(config.routing.rules):
        if unknown := [each for each in rule.backends if not _names_one(each, known)]:
            path = dotted(("routing", "rules", place, "backends"))
            hint = next(filter(None, (did_you_mean(each, known) for each in unknown)), "a discovery must find them")
            yield f"{path}: not in this configuration: {', '.join(unknown)} ({hint})"


def _names_one(pattern: str, known: Sequence[str]) -> bool:
    """Whether ``pattern`` matches a backend; the further replicas of a launched model are ``NAME-2``, ``NAME-3`` ..."""
    return any(fnmatchcase(name, pattern) or pattern.startswith(f"{name}-") for name in known)


def _unreached_rules(config: Config) -> Iterator[str]:
    """Rules behind one that takes every request."""
    for place, rule in enumerate(config.routing.rules[:-1]):
        if not (rule.header or rule.key) and rule.weight >= 1:
            path = dotted(("routing", "rules", place))
            yield f"{path}: takes every request, so no later rule counts (name a header or a key, or make it the last)"
            return


def _versioned_urls(config: Config) -> Iterator[str]:
    for name, backend in config.backends.items():
        if backend.url.rstrip("/").endswith("/v1"):
            yield f"{dotted(('backends', name, 'url'))}: ends in /v1, which the gateway adds (remove it)"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _open_to_everyone(config: Config) -> Iterator[str]:
    server = config.server
    if config.auth.keys or _is_loopback(server.host):
        return
    yield (
        f"server.host: whoever reaches {server.host} may use every model and the operators' pages, because there are "
        "no keys (set auth.keys, or listen on 127.0.0.1 behind a proxy)"
    )
