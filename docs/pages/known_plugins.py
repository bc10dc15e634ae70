"""Writes ``docs/plugins.md``: the plugins that are known but not bundled."""

from __future__ import annotations

from enginehouse.plugin_manager.known_plugins import KnownPlugin, known_plugins

_HEAD = """\
# Plugins

These plugins are not bundled. `enginehouse plugins search WORD` finds them too. [Bundled
plugins](reference/plugins.md) need no installation.

| plugin | brings | about |
|---|---|---|
"""
_TAIL = """
To add yours, add a table to `gateway/enginehouse/plugin_manager/known_plugins.toml`, and give its repository the topic
`enginehouse-plugin`. `enginehouse plugins new NAME` writes the first files of one, which installs, passes its own tests
and has a workflow that runs them. See [Write a plugin](how-to/write-a-plugin.md).
"""


def known_plugins_page() -> str:
    """The whole page."""
    return _HEAD + "".join(_row(each) for each in known_plugins()) + _TAIL


def _row(plugin: KnownPlugin) -> str:
    types = ", ".join(f"{kind.replace('_', ' ')} `{type}`" for kind, _, type in map(_parts, plugin.types))
    name = f"[{plugin.name}]({plugin.home})" if plugin.home else f"`pip install {plugin.name}`"
    return f"| {name} | {types} | {plugin.about} |\n"


def _parts(type: str) -> tuple[str, str, str]:
    return type.partition(":")
