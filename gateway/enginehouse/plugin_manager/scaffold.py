"""Writing the first files of a new plugin."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

from enginehouse.domain.errors import PluginError
from enginehouse.plugin_manager.naming import distribution_name, module_name

_TEMPLATES = files("enginehouse.plugin_manager") / "template"


def write_plugin(name: str, parent: Path) -> Path:
    """Write the distribution of a minimal plugin into a new folder of ``parent``, and return that folder.

    ``name`` is the entry point: lower-case words joined by hyphens. Raises ``PluginError`` for another name, or if the
    folder exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise PluginError("the name must be lower-case words joined by hyphens, such as 'night-shift'", plugin=name)
    names = {"name": name, "distribution": distribution_name(name), "module": module_name(name)}
    names["type"] = name.replace("-", "_")
    folder = parent / names["distribution"]
    if folder.exists():
        raise PluginError(f"the folder '{folder}' exists already", plugin=name)
    for template, path in _layout(names["module"]).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Template((_TEMPLATES / template).read_text("utf-8")).substitute(names), "utf-8")
    return folder


def _layout(module: str) -> dict[str, str]:
    """Where each template goes."""
    return {
        "pyproject.toml.tmpl": "pyproject.toml",
        "readme.md.tmpl": "README.md",
        "module.py.tmpl": f"src/{module}/__init__.py",
        "test.py.tmpl": f"tests/test_{module}.py",
    }
