"""One model of llama-swap: an engine to launch, or one that runs elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from enginehouse.config.foreign.addresses import is_here, read_url
from enginehouse.config.foreign.commands import HEALTH_PAGES, PORT, driver_of, one_command, with_port
from enginehouse.config.foreign.filters import read_filters
from enginehouse.config.foreign.macros import Macros
from enginehouse.config.foreign.table import Table
from enginehouse.config.managed import ANY_ANSWER
from enginehouse.config.units import format_duration

_HEALTH_PAGE = "/health"
_OF_A_PATH = "/%?=&:@!$'()*+,;~"
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\")
_LEFT_OUT = {
    "name": "left out: models have no display name here",
    "description": "left out: models have no description here",
    "metadata": "left out: the model list tells what a model can do, and nothing else of it",
    "unlisted": "left out: every model is listed; the models of a client key say what its holder sees and may use",
    "compat": "left out: websockets count like any other request",
    "healthCheckTimeout": "left out, as by llama-swap, which uses that of the whole file; set start_timeout here",
}
_CAPABILITIES_LEFT_OUT = {
    "out": "left out: what an engine puts out is not declared here",
    "reranker": "left out: whether an engine reranks is not declared here",
}
_TIMEOUTS_LEFT_OUT = "left out: there is no such time limit here"
_ONLY_LAUNCHED = "left out: only for engines that the gateway launches"
_LAUNCH_KEYS = ("env", "cmdStop", "ttl", "unloadTimeout", "concurrencyLimit", "checkEndpoint", "sendLoadingState")


class Defaults(NamedTuple):
    """What the whole file says of every model, times in seconds. ``progress``: clients are told that they wait."""

    ttl: int
    stop_timeout: int
    start_timeout: int
    progress: bool


class Place(NamedTuple):
    """Where a model is served: by an engine that ``command`` launches, else by a server at ``url``."""

    command: str
    url: str


class Imported(NamedTuple):
    """A model here. ``by_name``: what its filters do besides when it is asked for by one of its other names."""

    model: dict[str, Any]
    backend: dict[str, Any] | None
    by_name: dict[str, dict[str, Any]]


def read_model(table: Table, id: str, name: str, port: int, defaults: Defaults) -> Imported | None:
    """The model ``id`` under its new ``name``; ``port`` is what ``${PORT}`` stands for in texts other than commands.

    ``None`` if it neither says what to launch nor where it is served.
    """
    launch = Macros({"PORT": PORT, "PID": "${pid}", "MODEL_ID": "${model}" if name == id else id})
    _note_names(table, id, name)
    command = one_command(launch.expand(table.text("cmd")))
    driver = driver_of(command)
    place = _place(table, command, port)
    if place is None:
        table.note("left out: it says neither what to launch nor where it is served")
        return None
    filters = read_filters(table.table("filters"))
    shared = _capabilities(table.table("capabilities"))
    limits = read_timeouts(table.table("timeouts"))
    backend: dict[str, Any] | None = None
    if place.command:
        own = _launched(table, driver, place.command, launch, defaults) | limits
    else:
        own, backend = {}, {"driver": driver, "url": place.url, "models": [name]} | limits
        table.leave_out({**_LEFT_OUT, **dict.fromkeys(_LAUNCH_KEYS, _ONLY_LAUNCHED)})
    table.leave_out(_LEFT_OUT)
    always, by_name = _own_filters(table, id, name, filters.always, filters.by_name)
    return Imported(own | shared | ({"filters": always} if always else {}), backend, by_name)


def read_timeouts(table: Table) -> dict[str, Any]:
    """``timeouts`` as llama-swap has them for a model or a peer."""
    names = {"connect": "connect", "responseHeader": "first_byte"}
    limits = {ours: format_duration(table.whole(theirs, 0)) for theirs, ours in names.items() if theirs in table}
    reasons = dict.fromkeys(("keepalive", "tlsHandshake", "expectContinue", "idleConn"), _TIMEOUTS_LEFT_OUT)
    table.leave_out(reasons)
    return {"timeouts": limits} if limits else {}


def _note_names(table: Table, id: str, name: str) -> None:
    for position, alias in enumerate(table.items("aliases")):
        if isinstance(alias, dict) and len(alias) > 1:
            table.note("only its id is carried over", "aliases", position)
    wanted = table.text("useModelName")
    if name != id:
        table.note(f'the model is called "{name}" here, as its engine calls it, and "{id}" is an alias', "useModelName")
    elif wanted and wanted != id:
        problem = f'left out: "{wanted}" is the name of something else too, so the engine is told "{id}"'
        table.note(f"{problem}; have it accept that name", "useModelName")


def note_progress(table: Table) -> None:
    """How ``sendLoadingState`` works differently here."""
    text = "told only after scheduling.progress_patience, so that an error before that keeps its status"
    table.note(text, "sendLoadingState")


# --- where it is served


def _place(table: Table, command: str, port: int) -> Place | None:
    given = read_url(table, "proxy")
    url = urlsplit(given)
    if given and (not command or not is_here(url.hostname)):
        if command:
            table.note("left out: the gateway only launches engines on its own machine; start it yourself", "cmd")
        return Place("", given)
    if not command or PORT in command:
        if given and (url.port != port or url.scheme != "http" or url.path):
            table.note(f"left out: the engine is expected at http://127.0.0.1:{PORT}", "proxy")
        return Place(command, "") if command else None
    return _fixed_port(table, command, given)


def _fixed_port(table: Table, command: str, url: str) -> Place | None:
    """Where a model is served whose command does not say ``${PORT}``."""
    fixed = with_port(command, urlsplit(url).port if url else None)
    if fixed is not None:
        table.note(
            f"the gateway picks the port, so the command says {PORT} now; see that it is at the right place", "cmd"
        )
        return Place(fixed, "")
    if not url:
        return None
    table.note("left out: it does not say on which port to listen, so it cannot be launched; start it yourself", "cmd")
    return Place("", url)


# --- what is launched


def _launched(table: Table, driver: str, command: str, launch: Macros, defaults: Defaults) -> dict[str, Any]:
    ttl = table.whole("ttl", -1, least=-1)
    settings = {
        "driver": driver,
        "command": command,
        "env": _environment(table, launch),
        "ttl": format_duration(defaults.ttl if ttl < 0 else ttl),
        "stop_command": one_command(launch.expand(table.text("cmdStop"))),
        "health_path": _health_path(table, driver),
        "start_timeout": format_duration(defaults.start_timeout),
        "stop_timeout": format_duration(table.whole("unloadTimeout", 0) or defaults.stop_timeout),
        "concurrency": table.whole("concurrencyLimit", 0),
        "progress": _progress(table, defaults),
    }
    _note_differences(table, driver, command)
    usual = {"ttl": "0", "start_timeout": "2m", "stop_timeout": "10s"}
    return {key: value for key, value in settings.items() if value and usual.get(key) != value}


def _progress(table: Table, defaults: Defaults) -> str | None:
    wanted = table.flag("sendLoadingState", defaults.progress)
    if wanted is defaults.progress:
        return None
    if wanted:
        note_progress(table)
    return "reasoning" if wanted else "off"


def _note_differences(table: Table, driver: str, command: str) -> None:
    """What is carried over and yet works differently here."""
    if driver == "openai":
        table.note('no engine that is known here: driver = "openai"', "cmd")
    if table.text("checkEndpoint") == ANY_ANSWER:
        table.note("it is ready here when it answers anything at all, not as soon as it was started", "checkEndpoint")
    if "${env:" in command:
        table.note("a variable's value is one word here, also if there are spaces in it", "cmd")
    if _WINDOWS_PATH.search(command):
        table.note("a backslash counts as in a POSIX shell here: write it twice, or a slash instead", "cmd")
    if table.whole("concurrencyLimit", 0):
        table.note("what is over the limit waits in the queue here instead of being refused", "concurrencyLimit")


def _health_path(table: Table, driver: str) -> str:
    """Where to ask whether it is ready; empty if that is where its driver asks."""
    path = table.text("checkEndpoint", _HEALTH_PAGE)
    if path == ANY_ANSWER:
        return path
    path = "/" + quote(path.removeprefix("/"), safe=_OF_A_PATH)
    return "" if path == HEALTH_PAGES[driver] else path


def _environment(table: Table, launch: Macros) -> dict[str, str]:
    environment: dict[str, str] = {}
    for position, line in enumerate(table.texts("env")):
        name, is_set, value = launch.expand(line).partition("=")
        if is_set and name:
            environment[name] = value
        else:
            table.note("left out: expected NAME=value", "env", position)
    return environment


# --- what it can do, and what is done to its requests


def _capabilities(table: Table) -> dict[str, Any]:
    """The capabilities that llama-swap only lists; those it does not list stay unknown."""
    card: dict[str, Any] = {}
    if context := table.whole("context", 0):
        card["context_length"] = context
        table.note("requests that are longer are refused here", "context")
    if "image" in table.texts("in"):
        card["vision"] = True
    if table.flag("tools"):
        card["tools"] = True
    table.leave_out(_CAPABILITIES_LEFT_OUT)
    return card


def _own_filters(
    table: Table, id: str, name: str, always: dict[str, Any], by_name: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What is set for the model's own name is always set; its other names may set it anew."""
    others = {other: filters for other, filters in by_name.items() if other != name and filters}
    own = by_name.get(name, {}).get("set", {})
    if own:
        table.note(
            "holds for every name of the model here, unless that name sets the same", "filters", "setParamsByID", id
        )
    merged = {**always.get("set", {}), **own}
    return {**always, **({"set": merged} if merged else {})}, others
