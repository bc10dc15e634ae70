"""llama-server's presets of models (``--models-preset``): an INI file whose keys are command-line options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from enginehouse import ConfigError
from enginehouse_importers.kit.table import Converted, Note, Table, keys_in, seconds

_ALL: Final = "*"
_SECTION: Final = re.compile(r"\[(?P<name>.+)\]\s*$")
_MODEL: Final = ("model", "m", "LLAMA_ARG_MODEL")
_CONTEXT: Final = ("ctx-size", "c", "LLAMA_ARG_CTX_SIZE")
_OWN: Final = frozenset({"port", "host", "LLAMA_ARG_PORT", "LLAMA_ARG_HOST"})
"""The gateway says where an engine listens."""
_SWITCH: Final[Mapping[str, bool]] = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
_SWITCHES: Final = keys_in(
    "jinja mmap no-mmap mlock kv-unified embeddings embedding reranking rerank metrics props slots webui no-webui "
    "cont-batching swa-full verbose spec-default perf context-shift no-context-shift warmup no-warmup"
)
"""Options without a value. Others that are true or false have it as their value."""


def convert(text: str, file: str = "") -> Converted:
    """Convert the INI ``text``; ``file`` is its name in errors. Raises ``ConfigError`` for a line that is none."""
    notes: list[Note] = []
    sections = _sections(text, file)
    shared = sections.pop(_ALL, {})
    top = Table(sections.pop("", {}), (), notes)
    top.value("version")
    top.leave_out(dict.fromkeys(top.names(), "left out: it is in no section"))
    common = Table(shared, (_ALL,), notes)
    models = {name: _model(Table({**shared, **own}, (name,), notes)) for name, own in sections.items()}
    if not models and shared:
        common.note("left out: there is no model")
    return Converted({"models": models} if models else {}, notes)


def _sections(text: str, file: str) -> dict[str, dict[str, str]]:
    """The keys of each section, those before the first one under an empty name."""
    sections: dict[str, dict[str, str]] = {}
    current = sections.setdefault("", {})
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if found := _SECTION.match(line):
            current = sections.setdefault(found["name"].strip(), {})
            continue
        key, equals, value = line.partition("=")
        if not equals:
            remedy = "write [NAME] or KEY = VALUE there"
            raise ConfigError("not an INI file", file=f"{file}:{number}", remedy=remedy)
        current[key.strip()] = value.strip()
    return sections


def _model(table: Table) -> dict[str, Any]:
    model: dict[str, Any] = {"driver": "llamacpp"}
    path = next((table.text(key) for key in _MODEL if key in table), "")
    if context := next((table.whole(key, 0) for key in _CONTEXT if key in table), 0):
        model["context_length"] = context
    if path:
        model["path"] = path
    if table.flag("load-on-startup"):
        model["preload"] = True
    if stop := table.whole("stop-timeout", 0):
        model["stop_timeout"] = seconds(stop)
    for key in _OWN:
        if key in table:
            table.note("left out: the gateway says where an engine listens", key)
    arguments = list(_arguments(table))
    if path:
        return model | ({"args": arguments} if arguments else {})
    words = [_quoted(word) for word in ("llama-server", "--port", "${port}", *arguments)]
    return {"command": " ".join(words)} | model


def _arguments(table: Table) -> Iterator[str]:
    """The words of the options that are not read otherwise; the context length is one of both."""
    for key in table.names():
        known = key in (*_MODEL, "load-on-startup", "stop-timeout") or key in _OWN
        if known:
            table.value(key)
            continue
        value = table.text(key)
        if key.startswith("LLAMA_ARG_"):
            table.note("left out: write the option itself, or put the variable into models.NAME.env", key)
        elif key in _SWITCHES and value.lower() in _SWITCH:
            if _SWITCH[value.lower()]:
                yield f"--{key}"
            elif f"no-{key}" in _SWITCHES or key in ("mmap", "warmup", "context-shift", "webui"):
                yield f"--no-{key}"
            else:
                table.note("left out: it is off by default", key)
        else:
            yield from (f"-{key}" if len(key) == 1 else f"--{key}", value)


def _quoted(word: str) -> str:
    plain = re.fullmatch(r"[\w./:=,@%+${}-]+", word)
    return word if plain else "'" + word.replace("'", "'\\''") + "'"
