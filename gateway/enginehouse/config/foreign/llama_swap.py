"""llama-swap's ``config.yaml`` as ``enginehouse.toml``, and what could not be carried over."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from enginehouse.config.foreign.commands import without_comments
from enginehouse.config.foreign.document import read_document
from enginehouse.config.foreign.macros import Macros, unknown_macros
from enginehouse.config.foreign.models import Defaults, Imported, note_progress, read_model
from enginehouse.config.foreign.names import Names
from enginehouse.config.foreign.peers import read_peers, read_secret
from enginehouse.config.foreign.scheduling import read_scheduling
from enginehouse.config.foreign.table import Note, Table

_FIRST_PORT = 5800
_START_TIMEOUT, _LEAST_START_TIMEOUT = 120, 15
_STOP_TIMEOUT = 10
_IN_COMMANDS = ("cmd", "cmdStop", "env")
_LOG_LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
_LEFT_OUT = {
    "logTimeFormat": 'left out: log lines have one format for times; telemetry.log_format = "json" suits programs',
    "logToStdout": "left out: the gateway logs to standard error; what engines print is under /logs",
    "logRequests": "left out, as by llama-swap: it has no effect there",
    "metricsMaxInMemory": "left out: figures are kept as counters, see /metrics",
    "captureBuffer": "left out: requests and answers are not kept",
    "store": "left out: no history is kept on disk; /metrics is for a database of your own",
    "ui": "left out: there is no such page to set up",
    "performance": "left out: the machine's own figures are not collected",
    "includeAliasesInList": "left out: the model list always has the aliases",
    "upstream": "left out: every path under /upstream/MODEL loads the model",
    "profiles": "left out: names do not change while the gateway runs; see routing.aliases",
    "groups": "left out: routing.router takes its place",
    "matrix": "left out: routing.router takes its place",
}
_SELECTOR_LEFT_OUT = dict.fromkeys(
    ("name", "description", "unlisted", "metadata"), "left out: an alias has no more than its name"
)


class Converted(NamedTuple):
    """A configuration as our file has it, ready to be written as TOML, and what to know of it."""

    config: dict[str, Any]
    notes: list[Note]


def convert(text: str, file: str = "") -> Converted:
    """The configuration that the YAML ``text`` comes to; ``file`` is how errors call it.

    Nothing is looked up in the environment. Raises ``ConfigError`` for text that is no YAML table.
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
        self._names = Names(filled, (name for peer in self._peers.values() for name in peer.texts("models")))

    def config(self) -> dict[str, Any]:
        """Everything, in the order of our own documentation."""
        progress = _progress(self._top)
        imported = self._imported(bool(progress))
        launched = {id: self._names[id] for id, one in imported.items() if one.backend is None}
        backends = {id: one.backend for id, one in imported.items() if one.backend is not None}
        local = {self._names[id] for id in imported}
        peers = read_peers(self._peers, local, {*launched.values(), *backends})
        aliases = peers.aliases | {alias: name for alias, name in self._names.aliases().items() if name in local}
        models = peers.models | {self._names[id]: one.model for id, one in imported.items()}
        for one in imported.values():
            models |= {alias: {"filters": filters} for alias, filters in one.by_name.items() if alias in aliases}
        self._preload(models, set(launched.values()))
        served = {*local, *(name for backend in peers.backends.values() for name in backend["models"])}
        sections: dict[str, dict[str, Any]] = {
            "auth": {"keys": _keys(self._top)},
            "telemetry": _telemetry(self._top),
            "routing": {"aliases": aliases | _selectors(self._top, aliases | {name: name for name in served})},
            "backends": backends | peers.backends,
            "models": {name: model for name, model in models.items() if model},
            "scheduling": progress | read_scheduling(self._top, launched),
        }
        self._top.leave_out(_LEFT_OUT)
        return {name: section for name, section in sections.items() if any(section.values())}

    def _imported(self, progress: bool) -> dict[str, Imported]:
        top = self._top
        defaults = Defaults(
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

    def _preload(self, models: Mapping[str, dict[str, Any]], launched: Container[str]) -> None:
        hooks = self._top.table("hooks")
        on_startup = hooks.table("on_startup")
        for position, wanted in enumerate(on_startup.texts("preload")):
            name = self._names.find(wanted)
            if name is not None and name in launched:
                models[name]["preload"] = True
            else:
                on_startup.note(f'left out: "{wanted}" is no model that the gateway launches', "preload", position)
        on_startup.leave_out({})
        hooks.leave_out({})


# --- models before they are read one by one


def _expanded(raw: Table, macros: Macros) -> dict[str, dict[str, Any]]:
    """Every model with its macros replaced, but for those that llama-swap itself knows."""
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
        table.note(f"there is no macro ${{{name}}}: it stays as it is, and the gateway does not know it", key)


def _ports(top: Table, models: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """What llama-swap puts in for ``${PORT}``, by model."""
    first = top.whole("startPort", _FIRST_PORT)
    if "startPort" in top:
        top.note("left out: the gateway picks free ports by itself", "startPort")
    users = sorted(id for id, data in models.items() if "${PORT}" in str(data.get("cmd")))
    return {id: first + number for number, id in enumerate(users)}


def _filled(id: str, data: Mapping[str, Any], port: int) -> dict[str, Any]:
    """``data`` with what llama-swap itself knows, except where engines are launched and stopped with it."""
    known = Macros({"PORT": port, "MODEL_ID": id} if port else {"MODEL_ID": id})
    return {key: value if key in _IN_COMMANDS else known.expand(value) for key, value in data.items()}


# --- the rest of the file


def _keys(top: Table) -> list[dict[str, Any]]:
    secrets = dict.fromkeys(
        secret
        for position, text in enumerate(top.texts("apiKeys"))
        if (secret := read_secret(top, "apiKeys", position, text=text))
    )
    if secrets:
        top.note("every key has admin = true, as in llama-swap; take it from those that only send requests", "apiKeys")
    return [{"name": f"client-{n}", "key": secret, "admin": True} for n, secret in enumerate(secrets, 1)]


def _telemetry(top: Table) -> dict[str, Any]:
    level = _LOG_LEVELS.get(top.text("logLevel", "info"), "info")
    return {} if level == "info" else {"log_level": level}


def _progress(top: Table) -> dict[str, Any]:
    if not top.flag("sendLoadingState"):
        return {}
    note_progress(top)
    return {"progress": "reasoning"}


def _selectors(top: Table, known: Mapping[str, str]) -> dict[str, str]:
    """Aliases for the first target of each selector; ``known`` are the models by every name they have."""
    aliases = {}
    for name, table in top.tables("selectors").items():
        targets = [known[target] for target in table.texts("targets") if target in known]
        strategy = table.text("strategy")
        table.value("settings")
        if name in known:
            table.note("left out: something else has that name")
        elif not targets:
            table.note("left out: it has no target that could be carried over")
        else:
            aliases[name] = targets[0]
            if strategy != "pin":
                problem = f'strategy "{strategy}" left out: "{name}" is an alias of its first target'
                table.note(f"{problem}; a model with replicas, or with fallbacks, comes closest")
        table.leave_out(_SELECTOR_LEFT_OUT)
    return aliases
