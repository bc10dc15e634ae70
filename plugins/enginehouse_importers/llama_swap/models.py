"""Converts a model of llama-swap: an engine to launch, or a server that runs elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from enginehouse import format_duration
from enginehouse_importers.kit.backends import read_url
from enginehouse_importers.kit.table import Table
from enginehouse_importers.llama_swap.document import Macros
from enginehouse_importers.llama_swap.filters import fits_toml, read_filters

_ANY_ANSWER = "none"
"""No path: llama-swap and the gateway have the same word for it."""
_HEALTH_PATH = "/health"
_PATH_CHARACTERS = "/%?=&:@!$'()*+,;~"
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\")
_WHISPER = re.compile(r"whisper-server|whisper\.cpp")
_TRANSCRIPTIONS = "/v1/audio/transcriptions"
_LEFT_OUT = {
    "compat": "left out: WebSockets count like other requests",
    "healthCheckTimeout": "left out: llama-swap ignores it in favour of the global value; set start_timeout",
}
_ONLY_SHOWN = "only shown, as meta in the model list: routing does not read it"
_TIMEOUTS_LEFT_OUT = "left out: there is no such time limit"
_ONLY_LAUNCHED = "left out: it only applies to engines that the gateway launches"
_LAUNCH_KEYS = ("env", "cmdStop", "ttl", "unloadTimeout", "concurrencyLimit", "checkEndpoint", "sendLoadingState")
PORT = "${port}"
HEALTH_PATHS = {"llamacpp": "/health", "vllm": "/health", "sglang": "/health", "openai": "/v1/models"}
"""The path that each driver probes for health."""
_ENGINES = re.compile(
    r"""(?P<llamacpp> (?:^|[\s/\\"']) llama-server | llama\.cpp:(?:server|full) )
      | (?P<vllm>     (?:^|[\s/\\"']) vllm (?=[\s:"']|$) | vllm\.entrypoints | vllm-openai | vllm-wrapper )
      | (?P<sglang>   (?:^|[\s/\\"']) sglang (?=[\s:"']|$) | sglang\.launch_server )""",
    re.VERBOSE,
)
_FIRST_WORD = re.compile(r"""\s*("[^"]*"|'[^']*'|\S+)""")


class ModelDefaults(NamedTuple):
    """The global settings for all models, with times in seconds. ``progress`` is ``sendLoadingState``."""

    ttl: int
    stop_timeout: int
    start_timeout: int
    progress: bool


class ModelSource(NamedTuple):
    """The engine of a model: the gateway launches it with ``command``, or it is a server at ``url``."""

    command: str
    url: str


class ImportedModel(NamedTuple):
    """A converted model: its table, its backend if the gateway does not launch it, and filters by alias."""

    model: dict[str, Any]
    backend: dict[str, Any] | None
    by_name: dict[str, dict[str, Any]]


def read_model(table: Table, id: str, name: str, port: int, defaults: ModelDefaults) -> ImportedModel | None:
    """Convert the model ``id`` to its new ``name``. ``port`` is the value of ``${PORT}`` outside of commands.

    ``None`` if the model has no name, or neither a usable command nor a URL.
    """
    if not name.strip():
        table.note("left out: its name is empty")
        return None
    launch = Macros({"PORT": PORT, "PID": "${pid}", "MODEL_ID": "${model}" if name == id else id})
    _note_names(table, id, name)
    command = one_command(launch.expand(table.text("cmd")))
    driver = driver_of(command)
    source = _source(table, command, port)
    if source is None:
        table.note("left out: it has neither a command that can be launched nor a URL")
        return None
    filters = read_filters(table.table("filters"))
    shown, capabilities = read_shown(table), _capabilities(table.table("capabilities"))
    metadata = shown.get("metadata", {}) | capabilities.get("metadata", {})
    shared = shown | capabilities | ({"metadata": metadata} if metadata else {})
    limits = read_timeouts(table.table("timeouts"))
    backend: dict[str, Any] | None = None
    if source.command:
        own = _launched(table, driver, source.command, launch, defaults) | limits
    else:
        own, backend = {}, {"driver": driver, "url": source.url, "models": [name]} | limits
        table.leave_out({**_LEFT_OUT, **dict.fromkeys(_LAUNCH_KEYS, _ONLY_LAUNCHED)})
    table.leave_out(_LEFT_OUT)
    always, by_name = _own_filters(table, id, name, filters.always, filters.by_name)
    return ImportedModel(own | shared | ({"filters": always} if always else {}), backend, by_name)


def read_shown(table: Table) -> dict[str, Any]:
    """The fields of a model or a selector that the model list shows."""
    shown = {"name": table.text("name"), "description": table.text("description"), "unlisted": table.flag("unlisted")}
    if own := table.mapping("metadata"):
        fitting = {name: value for name, value in own.items() if fits_toml(value)}
        for name in own.keys() - fitting.keys():
            table.note("left out: TOML has no null", "metadata", name)
        shown["metadata"] = {"llamaswap": fitting}
    return {key: value for key, value in shown.items() if value}


def read_timeouts(table: Table) -> dict[str, Any]:
    """Convert the ``timeouts`` of a model or a peer."""
    names = {"connect": "connect", "responseHeader": "first_byte"}
    limits = {ours: format_duration(table.whole(theirs, 0)) for theirs, ours in names.items() if theirs in table}
    reasons = dict.fromkeys(("keepalive", "tlsHandshake", "expectContinue", "idleConn"), _TIMEOUTS_LEFT_OUT)
    table.leave_out(reasons)
    return {"timeouts": limits} if limits else {}


def _note_names(table: Table, id: str, name: str) -> None:
    for position, alias in enumerate(table.items("aliases")):
        if isinstance(alias, dict) and len(alias) > 1:
            table.note("only its id is converted", "aliases", position)
        if not str(alias).strip():
            table.note("left out: the name is empty", "aliases", position)
    wanted = table.text("useModelName")
    if name != id:
        table.note(f'the model is named "{name}", as its engine expects, and "{id}" is an alias', "useModelName")
    elif wanted and wanted != id:
        problem = f'left out: the name "{wanted}" is taken, so the engine receives "{id}"'
        table.note(f"{problem}; make the engine accept that name", "useModelName")


def note_progress(table: Table) -> None:
    """Note how ``sendLoadingState`` differs from the gateway's progress reports."""
    text = "reported within half a second, in the gateway's words, with the position in the queue"
    table.note(text, "sendLoadingState")


# --- engines


def _source(table: Table, command: str, port: int) -> ModelSource | None:
    given = read_url(table, "proxy")
    url = urlsplit(given)
    if given and (not command or not is_here(url.hostname)):
        if command:
            table.note("left out: the gateway launches engines only on its own machine; start it yourself", "cmd")
        return ModelSource("", given)
    if not command or PORT in command:
        if given and (url.port != port or url.scheme != "http" or url.path):
            table.note(f"left out: the engine must listen at http://127.0.0.1:{PORT}", "proxy")
        return ModelSource(command, "") if command else None
    return _fixed_port(table, command, given)


def _fixed_port(table: Table, command: str, url: str) -> ModelSource | None:
    """The engine of a model whose command has no ``${PORT}``."""
    fixed = with_port(command, urlsplit(url).port if url else None)
    if fixed is not None:
        table.note(
            f"the gateway chooses the port, so the command now has {PORT}; check that it is in the right place", "cmd"
        )
        return ModelSource(fixed, "")
    if not url:
        return None
    table.note("left out: it has no port to listen on, so the gateway cannot launch it; start it yourself", "cmd")
    return ModelSource("", url)


# --- launched models


def _launched(table: Table, driver: str, command: str, launch: Macros, defaults: ModelDefaults) -> dict[str, Any]:
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
    _note_own_endpoints(table, command)
    usual = {"ttl": "0", "start_timeout": "2m", "stop_timeout": "10s"}
    return {key: value for key, value in settings.items() if value and usual.get(key) != value}


def _note_own_endpoints(table: Table, command: str) -> None:
    """Note where clients find endpoints that are not routed by model."""
    if _WHISPER.search(command) and _TRANSCRIPTIONS not in command:
        text = f"whisper-server answers at /inference: add --inference-path {_TRANSCRIPTIONS} to its command"
        table.note(f"{text}, or have clients send to /upstream/MODEL/inference", "cmd")


def _progress(table: Table, defaults: ModelDefaults) -> str | None:
    wanted = table.flag("sendLoadingState", defaults.progress)
    if wanted is defaults.progress:
        return None
    if wanted:
        note_progress(table)
    return "reasoning" if wanted else "off"


def _note_differences(table: Table, driver: str, command: str) -> None:
    """Note settings that work differently in the gateway."""
    if driver == "openai":
        table.note('unknown engine: driver = "openai" is used', "cmd")
    if table.text("checkEndpoint") == _ANY_ANSWER:
        table.note("the engine counts as ready after its first answer, not at its start", "checkEndpoint")
    if "${env:" in command:
        table.note("the value of a variable is always one word, even if it contains spaces", "cmd")
    if _WINDOWS_PATH.search(command):
        table.note("a backslash escapes the next character, as in a POSIX shell: write \\\\ or /", "cmd")
    if table.whole("concurrencyLimit", 0):
        table.note("requests above the limit wait in the queue; llama-swap refuses them", "concurrencyLimit")


def _health_path(table: Table, driver: str) -> str:
    """The health path; empty if it is the driver's."""
    path = table.text("checkEndpoint", _HEALTH_PATH)
    if path == _ANY_ANSWER:
        return path
    path = "/" + quote(path.removeprefix("/"), safe=_PATH_CHARACTERS)
    return "" if path == HEALTH_PATHS[driver] else path


def _environment(table: Table, launch: Macros) -> dict[str, str]:
    environment: dict[str, str] = {}
    for position, line in enumerate(table.texts("env")):
        name, is_set, value = launch.expand(line).partition("=")
        if is_set and name:
            environment[name] = value
        else:
            table.note("left out: expected NAME=value", "env", position)
    return environment


# --- capabilities and filters


def _capabilities(table: Table) -> dict[str, Any]:
    """The declared capabilities. Those that llama-swap does not list stay unknown."""
    card: dict[str, Any] = {}
    if context := table.whole("context", 0):
        card["context_length"] = context
        table.note("the gateway refuses longer requests", "context")
    inputs, outputs = table.texts("in"), table.texts("out")
    if "image" in inputs:
        card["vision"] = True
    if table.flag("tools"):
        card["tools"] = True
    shown: dict[str, Any] = {}
    if "audio" in inputs or outputs:
        shown["architecture"] = {"input_modalities": inputs, "output_modalities": outputs}
        table.note(_ONLY_SHOWN, "out" if outputs else "in")
    if table.flag("reranker"):
        shown["capabilities"] = {"reranker": True}
        table.note(_ONLY_SHOWN, "reranker")
    table.leave_out({})
    return card | ({"metadata": shown} if shown else {})


def _own_filters(
    table: Table, id: str, name: str, always: dict[str, Any], by_name: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The filters of all requests and those by alias. Filters for the model's own name apply to all requests."""
    others = {other: filters for other, filters in by_name.items() if other != name and filters}
    own = by_name.get(name, {}).get("set", {})
    if own:
        table.note(
            "applies to every name of the model, unless that name sets the same field", "filters", "setParamsByID", id
        )
    merged = {**always.get("set", {}), **own}
    return {**always, **({"set": merged} if merged else {})}, others


def without_comments(text: str) -> str:
    """``text`` without the lines that start with ``#``."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def one_command(text: str) -> str:
    """``text`` without comments and without the backslashes at line ends, which the gateway does not need."""
    lines = (line.rstrip().removesuffix("\\").rstrip() for line in without_comments(text).splitlines())
    return "\n".join(lines).strip()


def driver_of(command: str) -> str:
    """The driver for the engine that ``command`` launches; ``openai`` for an unknown engine."""
    found = _ENGINES.search(command)
    return (found and found.lastgroup) or "openai"


def with_port(command: str, port: int | None) -> str | None:
    """``command`` with its fixed port replaced by ``${port}``. ``port`` is the number to replace, if it is known.

    If the command launches a known engine without a port, ``--port ${port}`` is added. ``None`` if the position of the
    port is unclear.
    """
    if port is None:
        option = r"(?<!\S)(--port(?:\s+|=))\d+(?!\S)"
    else:
        option = rf"((?<!\S)(?:--[\w-]*port|-p|--publish)(?:\s+|=)|(?<=[\w.\]]):){port}(?![\w.])"
    replaced, count = re.subn(option, lambda match: match[1] + PORT, command, count=1)
    if count:
        return replaced
    return f"{command} --port {PORT}" if _launches_engine(command) and "--port" not in command else None


def _launches_engine(command: str) -> bool:
    """Whether the command runs an engine directly, or as a Python module, so that it takes the engine's options."""
    engine, first = _ENGINES.search(command), _FIRST_WORD.match(command)
    if engine is None or first is None:
        return False
    return engine.start() < first.end() or re.search(r"python[\d.]*$", first[1].strip("\"'")) is not None


def is_here(host: str | None) -> bool:
    """Whether ``host`` means this machine."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified
