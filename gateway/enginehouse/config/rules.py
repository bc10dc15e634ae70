"""Rules between the keys of a configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from enginehouse.config.decode import Problem
from enginehouse.config.model_settings import ANY_ANSWER
from enginehouse.config.routing import Aliases, parse_hedge_after, read_alias
from enginehouse.config.schema import Config, ReplicaRange
from enginehouse.config.secrets import MASK, has_mask
from enginehouse.config.shape import PARAMETERS, Path, dotted
from enginehouse.config.units import format_size, parse_ports
from enginehouse.domain.errors import AliasCycle
from enginehouse.domain.names import did_you_mean

LOCAL_HOST = "local"
"""The name of the host that always exists."""


def problems(config: Config) -> list[Problem]:
    """The violated rules."""
    return [problem for rule in _RULES for problem in rule(config)]


def _body_memory(config: Config) -> Iterator[Problem]:
    server = config.server
    if 0 < server.max_body_memory < server.max_body:
        yield Problem(
            ("server", "max_body_memory"),
            f"a body of {format_size(server.max_body)} (max_body) would never fit",
            f"set it to {format_size(server.max_body)} at least",
        )


def _models_named(config: Config) -> Iterator[Problem]:
    for table in ("aliases", "fallbacks"):
        for name in getattr(config.routing, table):
            if not name or name.isspace():
                path = ("routing", table, name)
                yield Problem(path, "the name is empty, so no request can ask for it", "name a model, or remove it")
    for name, settings in config.routing.aliases.items():
        targets = read_alias(settings).targets
        if not targets or any(not target or target.isspace() for target in targets):
            yield Problem(("routing", "aliases", name), "names no model", "name one, or remove the alias")
    for name, chain in config.routing.fallbacks.items():
        for index, model in enumerate(chain):
            place: Path = ("routing", "fallbacks", name, index)
            if not model or model.isspace():
                yield Problem(place, "names no model", "name one, or remove it")
            elif model == name:
                yield Problem(place, "a model cannot be its own fallback", "remove it")


def _routing_rules(config: Config) -> Iterator[Problem]:
    for place, rule in enumerate(config.routing.rules):
        if not (rule.model or rule.backends or rule.strategy):
            remedy = "name a model, backends or a strategy, or remove the rule"
            yield Problem(("routing", "rules", place), "changes nothing", remedy)


def _fault(read: Callable[[str], object], text: str) -> str:
    """Why ``read`` refuses ``text``; empty if it does not."""
    try:
        read(text)
    except (ValueError, re.error) as error:
        return str(error)
    return ""


def _proxies(config: Config) -> Iterator[Problem]:
    for index, proxy in enumerate(config.server.trusted_proxies):
        if _fault(_network, proxy):
            remedy = 'write an address such as "10.0.0.1", or a network such as "10.0.0.0/8"'
            yield Problem(("server", "trusted_proxies", index), "is neither an address nor a network", remedy)


def _network(text: str) -> object:
    return ip_network(text, strict=False)


def _hedge_after(config: Config) -> Iterator[Problem]:
    if why := _fault(parse_hedge_after, config.routing.hedge_after):
        yield Problem(("routing", "hedge_after"), why, "name one of these")


def _patterns_of_paths(config: Config) -> Iterator[Problem]:
    for index, pattern in enumerate(config.scheduling.never_load_for):
        if why := _fault(re.compile, pattern):
            yield Problem(("scheduling", "never_load_for", index), f"is not a regular expression: {why}", "correct it")


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
    """Circles of aliases without patterns: a pattern may well match its own target."""
    aliases = Aliases(config.routing.aliases)
    done: set[str] = set()
    for start in aliases.named:
        if circle := _circle(start, aliases, (), done):
            path = ("routing", "aliases", circle[0])
            shown = " -> ".join(f'"{link}"' for link in circle)
            yield Problem(path, f"circular alias {shown}", "point one of them to a model", AliasCycle)


def _circle(name: str, aliases: Aliases, chain: tuple[str, ...], done: set[str]) -> tuple[str, ...]:
    """The circle that ``chain`` closes at ``name`` or behind it, if there is one that is not ``done``."""
    if name in chain:
        return (*chain[chain.index(name) :], name)
    if name in done or name not in aliases.named:
        return ()
    done.add(name)
    found = (_circle(target, aliases, (*chain, name), done) for target in aliases.named[name].targets)
    return next(filter(None, found), ())


def _urls(config: Config) -> Iterator[Problem]:
    for name, backend in config.backends.items():
        if problem := url_problem(backend.url):
            remedy = "write it as http://host:port or https://host/prefix"
            yield Problem(("backends", name, "url"), problem, remedy)


def url_problem(url: str) -> str:
    """What is wrong with the address of a server; empty if it is an ``http`` or ``https`` URL as engines have it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not the address of a server: {str(error)[:1].lower()}{str(error)[1:]}"
    for problem, what in (
        (parts.scheme not in ("http", "https"), "it does not begin with http:// or https://"),
        (not parts.hostname, "it has no host"),
        (port == 0, "0 is no port"),
        ("@" in parts.netloc, "it has a user; a key belongs in `api_key`"),
        ("?" in url, "it has a query"),
        ("#" in url, "it has a fragment"),
        (not url.isprintable() or " " in url, "it has a space or a control character"),
    ):
        if problem:
            return f"is not the address of a server: {what}"
    return ""


def _kv_events(config: Config) -> Iterator[Problem]:
    for name, backend in config.backends.items():
        events = backend.kv_events
        if events is None or events.ranks == 1:
            continue
        for key in ("endpoint", "replay"):
            if (address := getattr(events, key)) and not re.fullmatch(r"tcp://.+:\d{1,5}", address):
                path = ("backends", name, "kv_events", key)
                yield Problem(path, "has no TCP port, but each rank has one of its own", "write tcp://HOST:PORT")


def is_base_url(url: str) -> bool:
    """Whether ``url`` is an ``http`` or ``https`` URL without user, query and fragment."""
    return not url_problem(url)


def _masks(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        for key, texts in (("command", [model.command]), ("args", model.args), ("stop_command", [model.stop_command])):
            if any(map(has_mask, texts)):
                yield Problem(("models", name, key), "has the mask of a secret", 'put "${env:NAME}" there')
    tables: dict[Path, Any] = {PARAMETERS: config.plugins.parameters, ("services",): config.services}
    tables |= {("batches",): config.batches}
    tables |= {("discovery", name, "parameters"): each.parameters for name, each in config.discovery.items()}
    for key, chosen in (("interceptors", config.interceptors), ("guards", config.guards)):
        named = [(place, each) for place, each in enumerate(chosen) if not isinstance(each, str)]
        tables |= {(key, place, "parameters"): each.parameters for place, each in named}
    for path, table in tables.items():
        for inner in _masked(table):
            yield Problem((*path, *inner), "is the mask of a secret", "put the secret itself there")


def _masked(value: object) -> Iterator[Path]:
    """The places of masks in parameters."""
    if isinstance(value, dict | list):
        for place, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((place, *inner) for inner in _masked(item))
    elif value == MASK:
        yield ()


def _hosts(config: Config) -> Iterator[Problem]:
    known = sorted({LOCAL_HOST, *config.hosts})
    placed = [(("backends", name, "host"), backend.host) for name, backend in config.backends.items()]
    for name, model in config.models.items():
        hosts = model.hosts
        placed += [(("models", name, "host"), host) for host in hosts]
        if len(set(hosts)) < len(hosts):
            yield Problem(
                ("models", name, "host"), "names a host twice", "set replicas for several engines on each host"
            )
    for path, host in placed:
        if host not in known:
            remedy = did_you_mean(host, known) or f"add [{dotted(('hosts', host))}], or name one of {', '.join(known)}"
            yield Problem(path, f'there is no host "{host}"', remedy)


def _ports(config: Config) -> Iterator[Problem]:
    for name, host in config.hosts.items():
        if fault := _fault(parse_ports, host.ports):
            yield Problem(("hosts", name, "ports"), fault, "write FIRST-LAST, from 1 to 65535")


def _ranges(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        replicas = model.replicas
        if isinstance(replicas, ReplicaRange) and replicas.min > replicas.max:
            path = ("models", name, "replicas", "min")
            yield Problem(path, f"{replicas.min} is more than max, which is {replicas.max}", "lower it, or raise max")


def _commands(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        if model.command and "${port}" not in model.command:
            remedy = "add ${port} where the engine takes the port to listen on"
            yield Problem(("models", name, "command"), "does not contain ${port}", remedy)


def _health_paths(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        path = model.health_path
        if path not in ("", ANY_ANSWER) and not (path.startswith("/") and _is_printable_ascii(path)):
            remedy = f'begin it with /, or write "{ANY_ANSWER}" if any answer will do'
            yield Problem(("models", name, "health_path"), "is not a path", remedy)


def _is_printable_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _filters(config: Config) -> Iterator[Problem]:
    for model, filters in ((name, model.filters) for name, model in config.models.items()):
        named: list[tuple[Path, str]] = [(("strip", place), field) for place, field in enumerate(filters.strip)]
        named += [(("set", field), field) for field in filters.set]
        for path, field in named:
            if field.partition(".")[0] == "model":
                remedy = "use routing.aliases to let another model serve it"
                yield Problem(("models", model, "filters", *path), "the model of a request cannot be changed", remedy)
            elif "" in field.split("."):
                yield Problem(("models", model, "filters", *path), "names no field", 'write "field" or "object.field"')


def _clashes(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        if model.launches and name in config.backends:
            taken = dotted(("models", name))
            yield Problem(("backends", name), f"[{taken}] launches a backend of the same name", "rename one of them")


_RULES: tuple[Callable[[Config], Iterator[Problem]], ...] = (
    _body_memory,
    _models_named,
    _routing_rules,
    _hedge_after,
    _patterns_of_paths,
    _proxies,
    _weights,
    _alias_cycles,
    _urls,
    _kv_events,
    _hosts,
    _ports,
    _ranges,
    _masks,
    _commands,
    _health_paths,
    _filters,
    _clashes,
)
