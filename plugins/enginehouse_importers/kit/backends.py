"""Backends of a converted configuration, and the aliases that lead to their models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from enginehouse.settings import is_base_url
from enginehouse_importers.kit.table import Table, without_empty

DRIVERS: Mapping[str, str] = {
    "llamacpp": "llamacpp",
    "llama-cpp": "llamacpp",
    "llama.cpp": "llamacpp",
    "vllm": "vllm",
    "vllm-mlx": "vllm",
    "sglang": "sglang",
    "openai": "openai",
    "openai-compatible": "openai",
    "generic": "openai",
    "litellm": "litellm",
    "lemonade": "lemonade",
    "koboldcpp": "koboldcpp",
    "tabbyapi": "tabbyapi",
    "lmdeploy": "openai",
    "exo": "openai",
}
"""The driver for each kind of server that other programs name. Others are asked as OpenAI-compatible servers."""
PLUGINS: Mapping[str, str] = {
    "ollama": "ollama",
    "lmstudio": "lmstudio",
    "lm-studio": "lmstudio",
}
"""Kinds that have a driver of their own, in the plugin ``enginehouse-NAME``."""
_VERSION = re.compile(r"/v1/?$")
_VARIABLE = re.compile(r"(?:os\.environ/|\$\{?)(?P<name>[A-Za-z_]\w*)(?P<default>:-[^}]*)?\}?")
"""As LiteLLM and shells have it."""


class Backends:
    """Backends by name."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}

    def add(self, wanted: str, backend: Mapping[str, Any]) -> str:
        """Add a backend, and return its name: ``wanted``, or that with a number if it is taken."""
        name, number = wanted, 1
        while name in self.tables:
            number += 1
            name = f"{wanted}-{number}"
        self.tables[name] = without_empty(backend)
        return name


def driver_of(table: Table, key: str) -> str:
    """The driver for the kind of server at ``key``."""
    kind = table.text(key, "openai").lower()
    if kind in PLUGINS:
        driver = PLUGINS[kind]
        table.note(
            f'"openai" is used; the plugin enginehouse-{driver} has the driver "{driver}", which loads models', key
        )
    elif kind not in DRIVERS:
        table.note(f'"openai" is used for "{kind}": it must speak OpenAI\'s protocol', key)
    return DRIVERS.get(kind, "openai")


def read_base_url(table: Table, key: str, default: str = "") -> str:
    """``read_url`` as a backend has it, without ``/v1``."""
    return base_url(read_url(table, key, default))


def read_url(table: Table, key: str, default: str = "") -> str:
    """The URL at ``key``, without a slash at its end. An invalid one is noted, and the result is empty."""
    url = table.text(key, default).strip().rstrip("/")
    if url and not is_base_url(url):
        problem = "a URL cannot contain variables" if "${" in url else "it is not the URL of a server"
        table.note(f"left out: {problem}", key)
        return ""
    return url


def base_url(url: str) -> str:
    """``url`` without ``/v1`` and without a slash at its end."""
    return _VERSION.sub("", url.strip()).rstrip("/")


def name_of(url: str) -> str:
    """A name for the backend at ``url``: its host, and its port if it has one."""
    try:
        parts = urlsplit(url)
        port = f"-{parts.port}" if parts.port else ""
        return f"{(parts.hostname or 'backend').strip('[]')}{port}"
    except ValueError:
        return "backend"


def secret(table: Table, *keys: str | int, text: str | None = None, variable: re.Pattern[str] = _VARIABLE) -> str:
    """The secret ``text``, by default the one at ``keys``; ``env:NAME`` if it names a variable. No note contains it.

    ``variable``: how one is written, with the groups ``name`` and ``default``.
    """
    if text is None:
        text = table.text(str(keys[0]))
    if found := variable.fullmatch(text):
        if found["default"]:
            table.note("its default is left out: the variable must be set", *keys)
        return f"env:{found['name']}"
    if "${" in text or "os.environ/" in text:
        table.note('left out: store the whole secret in one variable and write "env:NAME"', *keys)
        return ""
    if text:
        table.note('is in the file in plain text, as before; "env:NAME" and "file:PATH" avoid that', *keys)
    return text


def targets(aliases: Mapping[str, Any], name: str) -> list[str]:
    """The models behind ``name``, in the order in which they are tried; ``name`` itself if it is no alias."""
    found = aliases.get(name, name)
    entries = found if isinstance(found, list) else [found]
    return [str(each["to"]) if isinstance(each, dict) else str(each) for each in entries]


def followed(aliases: Mapping[str, str]) -> dict[str, str]:
    """``aliases`` with the model at the end of each chain. One that leads to itself stays as it is."""
    return {name: _last(aliases, name) or target for name, target in aliases.items()}


def _last(aliases: Mapping[str, str], name: str) -> str:
    seen: set[str] = set()
    while name in aliases and name not in seen:
        seen.add(name)
        name = aliases[name]
    return "" if name in seen else name
