"""What must hold between the keys of a configuration, and what is odd enough to be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from enginehouse.config.decode import Problem, did_you_mean
from enginehouse.config.managed import ANY_ANSWER
from enginehouse.config.schema import Config, Key
from enginehouse.config.shape import Path, dotted
from enginehouse.domain.errors import AliasCycle

LOCAL_HOST = "local"
"""The host that always exists."""


def problems(config: Config) -> list[Problem]:
    """Why ``config`` cannot be used, although every value by itself is fine."""
    return [problem for rule in _RULES for problem in rule(config)]


def warnings(config: Config) -> list[str]:
    """What ``config`` says and hardly means."""
    return [*_aliases_of_aliases(config), *_unknown_models(config), *_versioned_urls(config)]


def _weights(config: Config) -> Iterator[Problem]:
    weights = config.routing.weights
    total = weights.priority + weights.load + weights.latency
    if total != 100:
        yield Problem(
            ("routing", "weights"),
            f"priority {weights.priority} + load {weights.load} + latency {weights.latency} is {total}",
            "make them sum to 100",
        )


def _alias_cycles(config: Config) -> Iterator[Problem]:
    aliases = config.routing.aliases
    done: set[str] = set()
    for start in aliases:
        chain: list[str] = []
        name = start
        while name in aliases and name not in done:
            done.add(name)
            chain.append(name)
            name = aliases[name]
        if name in chain:
            circle = " -> ".join(f'"{link}"' for link in [*chain[chain.index(name) :], name])
            path = ("routing", "aliases", name)
            yield Problem(path, f"circular alias {circle}", "point one of them to a model", AliasCycle)


def _urls(config: Config) -> Iterator[Problem]:
    for name, backend in config.backends.items():
        if not is_base_url(backend.url):
            remedy = "write it as http://host:port or https://host/prefix, without user, query or fragment"
            yield Problem(("backends", name, "url"), "is not the address of a server", remedy)


def is_base_url(url: str) -> bool:
    """Whether ``url`` is the address of a server: no user, no query, no fragment."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return (
        usable and "@" not in parts.netloc and not any(c in url for c in "?#") and url.isprintable() and " " not in url
    )


def _keys(config: Config) -> Iterator[Problem]:
    yield from _same(config.auth.keys, "name", lambda key: key.name, "give each key its own name")
    yield from _same(config.auth.keys, "key", lambda key: key.key, "give each client its own secret")
    for index, key in enumerate(config.auth.keys):
        if not key.key:
            yield Problem(("auth", "keys", index, "key"), "is empty", "put a secret there")


def _same(keys: Sequence[Key], field: str, value: Callable[[Key], str], remedy: str) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, key in enumerate(keys):
        earlier = first.setdefault(value(key), index)
        if earlier != index:
            yield Problem(("auth", "keys", index, field), f"is the same as auth.keys[{earlier}].{field}", remedy)


def _hosts(config: Config) -> Iterator[Problem]:
    known = sorted({LOCAL_HOST, *config.hosts})
    placed = [(("backends", name, "host"), backend.host) for name, backend in config.backends.items()]
    placed += [(("models", name, "host"), model.host) for name, model in config.models.items()]
    for path, host in placed:
        if host not in known:
            remedy = did_you_mean(host, known) or f"add [{dotted(('hosts', host))}], or name one of {', '.join(known)}"
            yield Problem(path, f'there is no host "{host}"', remedy)


def _commands(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        if model.command and "${port}" not in model.command:
            remedy = "add ${port} where the engine takes the port to listen on"
            yield Problem(("models", name, "command"), "does not say ${port}", remedy)


def _health_paths(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        path = model.health_path
        if path not in ("", ANY_ANSWER) and not (path.startswith("/") and _is_printable_ascii(path)):
            remedy = f'begin it with /, or write "{ANY_ANSWER}" if any answer will do'
            yield Problem(("models", name, "health_path"), "is no path", remedy)


def _is_printable_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _filters(config: Config) -> Iterator[Problem]:
    for model, filters in ((name, model.filters) for name, model in config.models.items()):
        named: list[tuple[Path, str]] = [(("strip", place), field) for place, field in enumerate(filters.strip)]
        named += [(("set", field), field) for field in filters.set]
        for path, field in named:
            if field.partition(".")[0] == "model":
                remedy = "use an alias to have another model serve it"
                yield Problem(("models", model, "filters", *path), "a request keeps its model", remedy)
            elif "" in field.split("."):
                yield Problem(("models", model, "filters", *path), "names no field", 'write "field" or "object.field"')


def _clashes(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        if model.launches and name in config.backends:
            taken = dotted(("models", name))
            yield Problem(("backends", name), f"[{taken}] launches a backend of the same name", "rename one of them")


def _aliases_of_aliases(config: Config) -> Iterator[str]:
    aliases = config.routing.aliases
    for name, target in aliases.items():
        if target in aliases:
            place = dotted(("routing", "aliases", name))
            yield f'{place}: "{target}" is an alias too and is not followed (point it to a model)'


def _unknown_models(config: Config) -> Iterator[str]:
    known = {*config.models, *(name for backend in config.backends.values() for name in backend.models or ())}
    routing = config.routing
    named: dict[Path, set[str]] = {
        ("routing", "aliases"): set(routing.aliases.values()) - routing.aliases.keys(),
        ("routing", "fallbacks"): {
            *routing.fallbacks,
            *(name for chain in routing.fallbacks.values() for name in chain),
        },
    }
    for path, names in named.items():
        if unknown := sorted(names - known):
            listed = ", ".join(f'"{name}"' for name in unknown)
            yield f"{dotted(path)}: not in this configuration, so a backend has to turn out to serve it: {listed}"


def _versioned_urls(config: Config) -> Iterator[str]:
    for name, backend in config.backends.items():
        if backend.url.rstrip("/").endswith("/v1"):
            yield f"{dotted(('backends', name, 'url'))}: ends in /v1, which is added anyway (leave it out)"


_RULES: tuple[Callable[[Config], Iterator[Problem]], ...] = (
    _weights,
    _alias_cycles,
    _urls,
    _keys,
    _hosts,
    _commands,
    _health_paths,
    _filters,
    _clashes,
)
