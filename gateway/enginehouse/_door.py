"""Reads what a package offers to plugins: the imports in its ``__init__.py`` that only type checkers carry out.

So every name stands once, type checkers and editors know its type, and it is imported when it is first used. (The same
way as SPEC 1 of the scientific Python projects, which reads a stub.)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

_LINE = re.compile(
    r"^    (?:# --- (?P<section>.+)|from (?P<module>\S+) import (?P<name>\w+) as (?P=name))$", re.MULTILINE
)

_SIMULATION = ("Backend", "Client", "Engines", "Gateway", "Process", "Settings")
_MOVED = {
    **{f"Virtual{name}": "enginehouse_sim.virtual" for name in _SIMULATION},
    "CheckedConfig": "enginehouse_offline.checked_config",
    "InstalledEngines": "enginehouse_offline.installed_engines",
    "OfflineGateway": "enginehouse_offline.offline_gateway",
    "check_config": "enginehouse_offline.checked_config",
    "json_schema": "enginehouse_offline.render",
}
"""The modules of bundled plugins that names went to."""


class PublicName(NamedTuple):
    """The place of a name: the module that defines it, and its section on the reference page."""

    module: str
    section: str


@lru_cache
def public_names(package: str) -> Mapping[str, PublicName]:
    """Every name that ``package`` offers, in the order of its list."""
    with open(str(sys.modules[package].__file__), encoding="utf-8") as source:
        lines = _LINE.finditer(source.read())
    found: dict[str, PublicName] = {}
    section = ""
    for line in lines:
        section = line["section"] or section
        if line["name"]:
            found[line["name"]] = PublicName(line["module"], section)
    return found


def find(package: str, name: str) -> object:
    """The object that ``package`` offers as ``name``. Raises ``AttributeError`` if it offers none.

    A name that has moved raises ``ImportError``, whose message ``from enginehouse import NAME`` shows as it is.
    """
    names = public_names(package)
    if name == "__all__":
        return list(names)
    if name in _MOVED:
        raise ImportError(f"import '{name}' from '{_MOVED[name]}'")
    if name not in names:
        raise AttributeError(f"module '{package}' has no attribute '{name}'")
    found: object = getattr(import_module(names[name].module), name)
    return found
