"""Converts llama-swap's ``config.yaml`` to ``enginehouse.toml`` and notes all that cannot be converted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from enginehouse_importers.kit.backends import secret
from enginehouse_importers.kit.table import Converted, Note, Table
from enginehouse_importers.llama_swap.document import Macros, read_document, unknown_macros
from enginehouse_importers.llama_swap.models import (
    ImportedModel,
    ModelDefaults,
    note_progress,
    read_model,
    read_shown,
    without_comments,
)
from enginehouse_importers.llama_swap.peers import VARIABLE, read_peers
from enginehouse_importers.llama_swap.scheduling import read_scheduling, swapping_group

_FIRST_PORT = 5800
_START_TIMEOUT, _LEAST_START_TIMEOUT = 120, 15
_STOP_TIMEOUT = 10
_IN_COMMANDS = ("cmd", "cmdStop", "env")
_LOG_LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
_LEFT_OUT = {
    "logTimeFormat": 'left out: times have one format; telemetry.log_format = "json" is easy to parse',
    "logToStdout": "left out: the gateway logs to standard error; the output of engines is under /logs",
    "logRequests": "left out: llama-swap ignores it too",
    "metricsMaxInMemory": "left out: metrics are counters, see /metrics",
    "captureBuffer": "left out: the gateway does not store requests and answers",
    "store": "left out: the gateway stores no history; collect /metrics with a database of your own",
    "ui": "left out: there is no such page",
    "performance": "left out: the gateway collects no figures of the machine",
    "includeAliasesInList": "left out: the model list always contains the aliases",
    "profiles": "left out: names are fixed while the gateway runs; see routing.aliases",
    "groups": "left out: routing.router takes its place",
    "matrix": "left out: routing.router takes its place",
}
_PREFERRED = {"warm": "loaded", "spillover": "free"}
"""llama-swap's strategies of selectors, and what an alias then prefers."""
CORS = "llama-swap answers the pages of every origin: name those that need it"
"""The note of every file: no key says so."""


def convert(text: str, file: str = "") -> Converted:
    """Convert the YAML ``text``; ``file`` is its name in errors.

    The result does not depend on the environment. Raises ``ConfigError`` if ``text`` is not a YAML mapping.
    """
    notes: list[Note] = []
    document = read_document(text, file)
    raw = Table(document, (), notes)
    macros = Macros(raw.mapping("macros"))
    models = _expanded(raw.table("models"), macros)
    rest = macros.expand({key: value for key, value in document.items() if key not in ("macros", "models")})
    for key, value in rest.items():
        _note_unknown(raw, key, value)
    return Converted(_Conversion(Table(rest, (), notes), models).config(), notes)


class _Conversion:
    def __init__(self, top: Table, models: Mapping[str, dict[str, Any]]) -> None:
        self._top = top
        self._peers = top.tables("peers")
        self._ports = _ports(top, models)
        filled = {id: _filled(id, data, self._ports.get(id, 0)) for id, data in models.items()}
        self._tables = top.beside("models", filled)
        self._names = ModelNames(filled, (name for peer in self._peers.values() for name in peer.texts("models")))

    def config(self) -> dict[str, Any]:
        """The sections that are not empty, in the order of the documentation."""
        progress = _progress(self._top)
        imported = self._imported(bool(progress))
        for alias, owner, id in self._names.repeated:
            self._tables[id].note(f'"{alias}" left out: it is an alias of "{owner}" already', "aliases")
        launched = {id: self._names[id] for id, one in imported.items() if one.backend is None}
        backends = {id: one.backend for id, one in imported.items() if one.backend is not None}
        local = {self._names[id] for id in imported}
        peers = read_peers(self._peers, local, {*launched.values(), *backends})
        aliases = peers.aliases | {alias: name for alias, name in self._names.aliases().items() if name in local}
        models = peers.models | {self._names[id]: one.model for id, one in imported.items()}
        for one in imported.values():
            models |= {alias: {"filters": filters} for alias, filters in one.by_name.items() if alias in aliases}
        scheduling = read_scheduling(self._top, launched)
        self._preload(models, set(launched.values()), scheduling)
        served = {*local, *(name for backend in peers.backends.values() for name in backend["models"])}
        selectors = _selectors(self._top, aliases | {name: name for name in served})
        if progress or any(one.model.get("progress") == "reasoning" for one in imported.values()):
            progress["progress_patience"] = "0s"
        models |= selectors.shown
        self._top.note(CORS, "CORS")
        sections: dict[str, dict[str, Any]] = {
            "server": {"cors": ["*"]},
            "compat": {"llama_swap": True},
            "auth": {"keys": _keys(self._top)},
            "telemetry": _telemetry(self._top),
            "routing": {"aliases": aliases | selectors.aliases},
            "hosts": {"local": {"max_loads": 0}} if scheduling.keys() & {"groups", "matrix"} else {},
            "backends": backends | peers.backends,
            "models": {name: model for name, model in models.items() if model},
            "scheduling": progress | _ignored_paths(self._top) | scheduling,
        }
        self._top.leave_out(_LEFT_OUT)
        return {name: section for name, section in sections.items() if any(section.values())}

    def _imported(self, progress: bool) -> dict[str, ImportedModel]:
        top = self._top
        defaults = ModelDefaults(
            ttl=top.whole("globalTTL", 0),
            stop_timeout=top.whole("unloadTimeout", 0) or _STOP_TIMEOUT,
            start_timeout=max(top.whole("healthCheckTimeout", _START_TIMEOUT), _LEAST_START_TIMEOUT),
            progress=progress,
        )
        imported = {
            id: read_model(table, id, self._names[id], self._ports.get(id, 0), defaults)
            for id, table in self._tables.items()
        }
        return {id: one for id, one in imported.items() if one is not None}

    def _preload(
        self, models: Mapping[str, dict[str, Any]], launched: Container[str], scheduling: Mapping[str, Any]
    ) -> None:
        hooks = self._top.table("hooks")
        on_startup = hooks.table("on_startup")
        kept: dict[str, str] = {}
        wanted = list(enumerate(on_startup.texts("preload")))
        for position, id in reversed(wanted):  # llama-swap loads all, one after the other, so the last one stays
            name = self._names.find(id)
            if name is None or name not in launched:
                on_startup.note(f'left out: the gateway does not launch "{id}"', "preload", position)
                continue
            group = swapping_group(name, scheduling)
            stays = kept.setdefault(group, name) if group is not None else name
            if stays == name:
                models[name]["preload"] = True
            else:
                on_startup.note(
                    f'left out: loading "{stays}" stops it, for one of them runs at a time', "preload", position
                )
        on_startup.leave_out({})
        hooks.leave_out({})


# --- preparation of models


def _expanded(raw: Table, macros: Macros) -> dict[str, dict[str, Any]]:
    """Every model with its macros expanded, except those that llama-swap itself defines."""
    models = {}
    for id in raw.names():
        data = raw.mapping(id)
        own = macros.over(raw.table(id).mapping("macros"))
        if isinstance(command := data.get("cmd"), str):
            data = data | {"cmd": without_comments(command)}
        models[id] = own.expand({key: value for key, value in data.items() if key != "macros"})
        _note_unknown(raw, id, models[id])
    return models


def _note_unknown(table: Table, key: str, value: Any) -> None:
    for name in dict.fromkeys(unknown_macros(value)):
        table.note(f"unknown macro ${{{name}}}: it is kept as it is, and the gateway will not replace it", key)


def _ports(top: Table, models: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The value of ``${PORT}`` for each model that uses it."""
    first = top.whole("startPort", _FIRST_PORT)
    if "startPort" in top:
        top.note("left out: the gateway chooses free ports", "startPort")
    users = sorted(id for id, data in models.items() if "${PORT}" in str(data.get("cmd")))
    return {id: first + number for number, id in enumerate(users)}


def _filled(id: str, data: Mapping[str, Any], port: int) -> dict[str, Any]:
    """``data`` with ``${PORT}`` and ``${MODEL_ID}`` expanded, except in the texts that the gateway expands itself."""
    known = Macros({"PORT": port, "MODEL_ID": id} if port else {"MODEL_ID": id})
    return {key: value if key in _IN_COMMANDS else known.expand(value) for key, value in data.items()}


# --- the rest of the file


def _keys(top: Table) -> list[dict[str, Any]]:
    texts = enumerate(top.texts("apiKeys"))
    found = (secret(top, "apiKeys", position, text=text, variable=VARIABLE) for position, text in texts)
    secrets = dict.fromkeys(filter(None, found))
    if secrets:
        top.note("every key has admin = true, as in llama-swap; remove it from keys that only send requests", "apiKeys")
    return [{"name": f"client-{n}", "key": key, "admin": True} for n, key in enumerate(secrets, 1)]


def _telemetry(top: Table) -> dict[str, Any]:
    level = _LOG_LEVELS.get(top.text("logLevel", "info"), "info")
    return {} if level == "info" else {"log_level": level}


def _progress(top: Table) -> dict[str, Any]:
    if not top.flag("sendLoadingState"):
        return {}
    note_progress(top)
    return {"progress": "reasoning"}


class _Selectors(NamedTuple):
    """The aliases that selectors become, and the tables of what the model list shows of these."""

    aliases: dict[str, Any]
    shown: dict[str, dict[str, Any]]


def _selectors(top: Table, known: Mapping[str, str]) -> _Selectors:
    """An alias for each selector. ``known`` maps every name to its model."""
    found = _Selectors({}, {})
    for name, table in top.tables("selectors").items():
        targets = list(dict.fromkeys(known[target] for target in table.texts("targets") if target in known))
        prefer = _PREFERRED.get(table.text("strategy", "pin"))
        shown = read_shown(table)
        if not name.strip():
            table.note("left out: the name is empty")
        elif name in known:
            table.note("left out: the name is taken")
        elif not targets:
            table.note("left out: none of its targets could be converted")
        else:
            found.aliases[name] = {"to": targets, "prefer": prefer} if prefer else targets[0]
            found.shown.update({name: shown} if shown else {})
        _note_spillover(table.table("settings"), prefer)
        table.leave_out({})
    return found


def _note_spillover(settings: Table, prefer: str | None) -> None:
    if settings.whole("spillover", 1) > 1 and prefer == "free":
        settings.note(
            "left out: a target is free while it has a free slot; models.NAME.concurrency sets how many", "spillover"
        )
    settings.leave_out({})


def _ignored_paths(top: Table) -> dict[str, list[str]]:
    """The paths for which no model is loaded. Both programs have the same ones by default."""
    upstream = top.table("upstream")
    patterns = []
    for position, pattern in enumerate(upstream.texts("ignorePaths")):
        if why := _fault_of_pattern(pattern):
            upstream.note(f"left out: Python has no such regular expression ({why})", "ignorePaths", position)
        else:
            patterns.append(pattern)
    upstream.leave_out({})
    return {"never_load_for": patterns} if patterns else {}


def _fault_of_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return ""


class ModelNames:
    """Maps the id of every model in llama-swap to its new name.

    A model with ``useModelName`` takes that name, and its id becomes an alias. So the engine receives the name that it
    expects, because the gateway replaces an alias by the model's name. If the name is taken, the model keeps its id.
    """

    def __init__(self, models: Mapping[str, Mapping[str, Any]], elsewhere: Iterable[str]) -> None:
        wanted = {id: str(data.get("useModelName") or id) for id, data in models.items()}
        counts = Counter(wanted.values())
        others = {*elsewhere, *models}
        owners: dict[str, str] = {}
        self.repeated: list[tuple[str, str, str]] = []
        """The aliases that a model repeats, each with the model that keeps it and the one that does not get it."""
        for id, data in models.items():
            for alias in _aliases(data):
                if owners.setdefault(alias, id) != id:
                    self.repeated.append((alias, owners[alias], id))
        self._names = {
            id: name if counts[name] == 1 and name not in others and owners.get(name, id) == id else id
            for id, name in wanted.items()
        }
        self._aliases = {alias: self._names[id] for alias, id in owners.items()}
        self._aliases |= {id: name for id, name in self._names.items() if name != id}

    def __getitem__(self, id: str) -> str:
        return self._names[id]

    def aliases(self) -> dict[str, str]:
        """All aliases, except those that are the name of a model, and the empty one, which no request can ask for."""
        taken = set(self._names.values())
        return {alias: name for alias, name in self._aliases.items() if alias not in taken and alias.strip()}

    def find(self, name: str) -> str | None:
        """The new name of the model with the id or alias ``name``."""
        return self._names.get(name) or self._aliases.get(name)


def _aliases(data: Mapping[str, Any]) -> Iterator[str]:
    """The aliases of a model: texts, mappings with an ``id``, and the names in ``filters.setParamsByID``."""
    given = data.get("aliases")
    for alias in given if isinstance(given, list) else ():
        name = alias.get("id") if isinstance(alias, dict) else alias
        if isinstance(name, str | int | float):
            yield str(name)
    filters = data.get("filters")
    by_name = filters.get("setParamsByID") if isinstance(filters, dict) else None
    yield from by_name if isinstance(by_name, dict) else ()
