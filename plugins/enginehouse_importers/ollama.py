"""The models of a running Ollama, and ``Modelfile``."""

from __future__ import annotations

import re
import shlex
from http.client import HTTPException
from pathlib import PurePath
from typing import Any, Final
from urllib.request import urlopen

import msgspec

from enginehouse import ConfigError
from enginehouse_importers.kit.backends import base_url
from enginehouse_importers.kit.table import Converted, Note, Table

_INSTRUCTION: Final = re.compile(r"(?P<name>[A-Za-z]+)\s+(?P<rest>.*)", re.DOTALL)
_NAMED: Final = re.compile(r"(?P<before>.+)\.modelfile|modelfile\.(?P<behind>.+)", re.IGNORECASE)
_FIELDS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "repeat_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last_n",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "num_predict": "max_tokens",
    "stop": "stop",
}
"""Parameters that become fields of requests."""
_OPTIONS: Final = {"num_gpu": "-ngl", "num_thread": "--threads", "num_batch": "--batch-size", "main_gpu": "--main-gpu"}
"""Parameters that become options of llama-server."""
_LEFT_OUT: Final = {
    "TEMPLATE": "left out: the file of a model has its template; --chat-template-file replaces it",
    "SYSTEM": "left out: clients send their own system message",
    "MESSAGE": "left out: clients send their own messages",
    "LICENSE": "left out: it has no effect",
    "REQUIRES": "left out: it is a version of Ollama",
    "RENDERER": "left out: llama-server has its own",
    "PARSER": "left out: llama-server has its own",
}
_TIMEOUT_S: Final = 10.0


class _Tag(msgspec.Struct):
    name: str


class _Tags(msgspec.Struct):
    models: list[_Tag]


def convert_server(url: str, tags: bytes) -> Converted:
    """Convert what the server at ``url`` answered to ``GET /api/tags``. Raises ``ConfigError``."""
    try:
        models = [tag.name for tag in msgspec.json.decode(tags, type=_Tags).models]
    except msgspec.DecodeError:
        raise ConfigError(f"the server at {url} does not answer as Ollama does", remedy="give its URL") from None
    notes = [
        Note(
            "models",
            'Ollama still loads and unloads them; with the plugin enginehouse-ollama and driver = "ollama", '
            "the gateway does",
        ),
    ]
    backend: dict[str, Any] = {"driver": "openai", "url": base_url(url)}
    aliases = {name.removesuffix(":latest"): name for name in models if name.endswith(":latest")}
    routing = {"routing": {"aliases": aliases}} if aliases else {}
    return Converted({**routing, "backends": {"ollama": backend | {"models": models}}}, notes)


def ask_server(url: str) -> bytes:
    """The models of the server at ``url``. Raises ``ConfigError``."""
    address = f"{base_url(url)}/api/tags"
    try:
        with urlopen(address, timeout=_TIMEOUT_S) as answer:
            found: bytes = answer.read()
            return found
    except (OSError, HTTPException, ValueError) as error:
        raise ConfigError(f"no Ollama answers at {address}: {error}", remedy="start it, or give its URL") from None


def convert_modelfile(text: str, file: str = "") -> Converted:
    """Convert a ``Modelfile``, whose folder or suffix names the model. Raises ``ConfigError`` without ``FROM``."""
    notes: list[Note] = []
    instructions = _instructions(text)
    source = next((rest for name, rest in instructions if name == "FROM"), "")
    if not source:
        raise ConfigError("has no FROM", file=file, remedy="name a Modelfile, or the URL of a running Ollama")
    table = Table({}, (), notes)
    fields, arguments, card = _parameters(table, instructions)
    for name, rest in instructions:
        if name == "ADAPTER":
            arguments += ["--lora", rest]
        elif name not in ("FROM", "PARAMETER"):
            table.note(_LEFT_OUT.get(name, "left out: the importer does not know this instruction"), name)
    filters = {"filters": {"set": fields}} if fields else {}
    name = _name(file, source)
    if _is_file(source):
        own = {"driver": "llamacpp", "path": source} | card | ({"args": arguments} if arguments else {})
        return Converted({"models": {name: own | filters}}, notes)
    if ":" not in source.rpartition("/")[2]:
        source += ":latest"  # as Ollama lists it: an alias of an alias leads nowhere
    table.note(f'"{name}" is an alias of the model "{source}", which a backend or [models] must serve', "FROM")
    if arguments:
        table.note(f"left out: options for the engine of {source}: {shlex.join(arguments)}", "PARAMETER")
    model = card | filters
    return Converted({"routing": {"aliases": {name: source}}} | ({"models": {name: model}} if model else {}), notes)


def _instructions(text: str) -> list[tuple[str, str]]:
    """The instructions with their arguments. A text in triple quotes may have several lines."""
    found: list[tuple[str, str]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        while line.count('"""') == 1 and (more := next(lines, None)) is not None:
            line = f"{line}\n{more}"
            if more.count('"""'):
                break
        if matched := _INSTRUCTION.match(line.strip()):
            found.append((matched["name"].upper(), matched["rest"].strip().strip('"')))
    return found


def _parameters(table: Table, instructions: list[tuple[str, str]]) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """The fields of requests, the options of the engine, and what the model can do."""
    fields: dict[str, Any] = {}
    arguments: list[str] = []
    card: dict[str, Any] = {}
    for rest in (rest for name, rest in instructions if name == "PARAMETER"):
        name, *values = rest.split(None, 1)
        name, value = name.lower(), "".join(values).strip().strip('"')
        if name == "stop":
            fields.setdefault("stop", []).append(value)
        elif name == "num_predict" and value.startswith("-"):
            table.note("left out: without max_tokens, an answer has no limit of its own", "PARAMETER", name)
        elif name in _FIELDS:
            fields[_FIELDS[name]] = _number(value)
        elif name in _OPTIONS:
            arguments += [_OPTIONS[name], value]
        elif name == "num_ctx" and value.isdecimal():
            arguments += ["--ctx-size", value]
            card["context_length"] = int(value)
        else:
            table.note("left out: there is no equivalent", "PARAMETER", name)
    for name in fields:
        table.note("set in every request, also where a client names another value", "PARAMETER", name)
    return fields, arguments, card


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:  # noqa: PERF203 - two tries
            continue
    return text


def _is_file(source: str) -> bool:
    return source.startswith((".", "/", "~")) or source.lower().endswith((".gguf", ".safetensors"))


def _name(file: str, source: str) -> str:
    """``NAME.Modelfile`` and ``Modelfile.NAME`` are called NAME; any other file is called as its source."""
    found = _NAMED.fullmatch(PurePath(file).name)
    name = found and (found["before"] or found["behind"])
    return name or (PurePath(source).stem if _is_file(source) else f"{source}-modelfile")
