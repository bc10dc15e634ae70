"""Plugins that are known but not bundled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

import msgspec


class KnownPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution with plugins. ``types`` are ``KIND:TYPE``; ``home`` is its address, by default the index's."""

    name: str
    about: str
    types: Sequence[str]
    home: str = ""

    @property
    def source(self) -> str:
        """Where it comes from: its address, or the command that installs it from the index."""
        return self.home or f"pip install {self.name}"


@lru_cache(maxsize=1)
def known_plugins() -> Sequence[KnownPlugin]:
    """Every known plugin, by name."""
    tables = msgspec.toml.decode(Path(__file__).with_name("known_plugins.toml").read_bytes())
    return [msgspec.convert({"name": name, **tables[name]}, KnownPlugin) for name in sorted(tables)]


def how_to_get(kind: str, type: str, installed: Iterable[str]) -> str:
    """How to install the plugin that registers ``type``; empty if an ``installed`` type is spelt more like it."""
    types = [(each.partition(":"), plugin) for plugin in known_plugins() for each in plugin.types]
    offered = {type: plugin for (of, _, type), plugin in types if of == kind}
    near = get_close_matches(type, [*installed, *offered], n=1)
    if not near or near[0] not in offered:
        return ""
    plugin = offered[near[0]]
    return f"'{near[0]}' comes with {plugin.name}: {plugin.source}"
