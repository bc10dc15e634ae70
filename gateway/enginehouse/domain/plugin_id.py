"""The identity of one plugin's type, for errors, logs and metrics."""

from __future__ import annotations

from typing import NamedTuple


class PluginId(NamedTuple):
    """One registered type. ``plugin``: its entry point. ``name``: the instance, where it has a name of its own.

    ``trusted``: part of Enginehouse. Its results are not checked on the request path.
    """

    kind: str
    type: str
    plugin: str = ""
    name: str = ""
    trusted: bool = False

    def __str__(self) -> str:
        if self.name:
            return f"{self.kind} '{self.name}' (type '{self.type}' of plugin '{self.plugin}')"
        return f"{self.kind} '{self.type}'" + (f" of plugin '{self.plugin}'" if self.plugin else "")

    @property
    def details(self) -> dict[str, str]:
        """The ``details`` of an error that this plugin causes: kind, type, plugin and, if it has one, name."""
        found = {"kind": self.kind, "type": self.type, "plugin": self.plugin}
        return {**found, "name": self.name} if self.name else found
