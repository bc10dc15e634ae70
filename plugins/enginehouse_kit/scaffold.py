"""``enginehouse plugins new``: writes the first files of a new plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.metadata import version
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from string import Template

import click

from enginehouse import PluginError
from enginehouse.settings import did_you_mean
from enginehouse_kit.plugin_manager import KINDS, Kind, installed_plugins

_TEMPLATES = files("enginehouse_kit") / "template"
_FILES = {
    "pyproject.toml": "pyproject.toml.tmpl",
    "README.md": "readme.md.tmpl",
    "LICENSE": "license.tmpl",
    ".github/workflows/test.yml": "workflow.yml.tmpl",
    "tests/test_plugin.py": "test_plugin.py.tmpl",
}
_WIDTH = 120
_IMPORTS = {"command": "click>=8.1", "routes": "starlette>=0.46"}


def write_plugin(name: str, parent: Path, kinds: Sequence[str] = ("filter",)) -> Path:
    """Write a plugin that registers one type of each of ``kinds`` into a new folder of ``parent``. Return that folder.

    ``name`` is the entry point: lower-case words joined by hyphens. Raises ``PluginError`` for any other name, for that
    of a bundled plugin, for an unknown kind, and if the folder exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise PluginError("the name must be lower-case words joined by hyphens, such as 'night-shift'", plugin=name)
    if _module(name) in {each.origin.module.partition(".")[0] for each in installed_plugins() if each.origin.bundled}:
        raise PluginError("Enginehouse has a plugin of this name: choose another one", plugin=name)
    chosen = _kinds(name, kinds)
    folder = parent / f"enginehouse-{name}"
    if folder.exists():
        raise PluginError(f"the folder '{folder}' already exists", plugin=name)
    for path, text in _contents(name, chosen):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return folder


def _module(name: str) -> str:
    return f"enginehouse_{name.replace('-', '_')}"


def _kinds(name: str, kinds: Sequence[str]) -> list[Kind]:
    known = {kind.name for kind in KINDS}
    for kind in kinds:
        if kind not in known:
            raise PluginError(f"unknown kind '{kind}' ({_remedy(kind)})", plugin=name)
    return [kind for kind in KINDS if kind.name in kinds]  # in the order of the hooks, each once


def _remedy(unknown: str) -> str:
    known = [kind.name for kind in KINDS]
    return f"{did_you_mean(unknown, known)} known: {', '.join(known)}".lstrip()


def _contents(name: str, kinds: Sequence[Kind]) -> Iterator[tuple[str, str]]:
    """Every file: its path in the plugin's folder, and its text."""
    module = _module(name)
    values = [_values(name, kind, alone=len(kinds) == 1) for kind in kinds]
    shared = {
        **values[0],
        "module": module,
        "year": str(date.today().year),
        "dependencies": ", ".join(f'"{each}"' for each in _dependencies(kinds)),
        "sections": "\n".join(_filled(f"kinds/{each['kind']}/readme.md.tmpl", each) for each in values).rstrip(),
        "commands": "".join(_command(module, each) for kind, each in zip(kinds, values, strict=True) if not kind.hook),
        "expected": "\n".join(f'        ("{each["kind"]}", "{each["type"]}"),' for each in values),
    }
    for path, template in _FILES.items():
        yield path, _filled(template, shared)
    yield f"src/{module}/py.typed", ""
    yield f"src/{module}/__init__.py", "\n".join(_package(module, kinds, values))
    for each in values:
        yield f"src/{module}/{each['kind']}.py", _filled(f"kinds/{each['kind']}/module.py.tmpl", each)
        yield f"tests/test_{each['kind']}.py", _filled(f"kinds/{each['kind']}/test.py.tmpl", each)


def _values(name: str, kind: Kind, alone: bool) -> dict[str, str]:
    """The words that the templates of one kind contain. Each type has a name of its own, for its own parameters."""
    type = name.replace("-", "_") if alone else f"{name}-{kind.name}".replace("-", "_")
    words = f"{name}-{kind.name}".replace("_", "-").split("-")
    cls = "".join(word.capitalize() for word in words) if kind.interface else f"make_{kind.name}"
    if not kind.hook:
        cls = f"{type}_" if iskeyword(type) else type  # it names a function
    return {"name": name, "distribution": f"enginehouse-{name}", "kind": kind.name, "type": type, "cls": cls}


def _command(module: str, values: dict[str, str]) -> str:
    """The table with the entry point of a command."""
    name = f'{values["type"]} = "{module}.{values["kind"]}:{values["cls"]}"'
    return f'\n[project.entry-points."enginehouse.commands"]\n{name}\n'


def _dependencies(kinds: Sequence[Kind]) -> Iterator[str]:
    major, minor = version("enginehouse").split(".")[:2]
    following = f"0.{int(minor) + 1}" if major == "0" else f"{int(major) + 1}"
    yield f"enginehouse>={major}.{minor},<{following}"
    yield "msgspec>=0.19"
    yield from (_IMPORTS[kind.name] for kind in kinds if kind.name in _IMPORTS)


def _package(module: str, kinds: Sequence[Kind], values: Sequence[dict[str, str]]) -> Iterator[str]:
    """The lines of ``__init__.py``: the hooks."""
    yield '"""A plugin for Enginehouse."""\n'
    hooks = [(kind, each) for kind, each in zip(kinds, values, strict=True) if kind.hook]
    if not hooks:
        return
    imports = {"enginehouse": {"Register"}}
    for interface in (kind.interface for kind, _ in hooks if kind.interface):
        home = interface.__module__ if interface.__module__.startswith("enginehouse_kit.") else "enginehouse"
        imports.setdefault(home, set()).add(interface.__name__)
    yield "from __future__ import annotations\n"
    if any(kind.interface is None for kind, _ in hooks):
        yield "from typing import Any\n"
    for home, found in sorted(imports.items()):
        names = [*sorted(found), *(["hookimpl"] if home == "enginehouse" else [])]
        line = f"from {home} import {', '.join(names)}"
        yield line if len(line) <= _WIDTH else "\n".join([f"from {home} import (", *(f"    {n}," for n in names), ")"])
    yield ""
    yield from sorted(f"from {module}.{each['kind']} import {each['cls']}" for _, each in hooks)
    for kind, each in hooks:
        registered = kind.interface.__name__ if kind.interface else "Any"
        yield f"\n\n@hookimpl\ndef {kind.hook}(register: Register[{registered}]) -> None:"
        yield '    """Called once, when the gateway starts."""'
        yield f'    register("{each["type"]}", {each["cls"]})'
    yield ""


def _filled(template: str, values: dict[str, str]) -> str:
    return Template(_TEMPLATES.joinpath(template).read_text("utf-8")).substitute(values)


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    "kinds",
    metavar="KIND,...",
    default="filter",
    show_default=True,
    help=f"The kinds that the plugin registers: {', '.join(kind.name for kind in KINDS)}.",
)
@click.option(
    "--directory",
    "-d",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where to create the plugin's folder; else in the current directory.",
)
def new(name: str, kinds: str, directory: Path) -> None:
    """Write the first files of the plugin NAME.

    They are a distribution that installs and passes its own tests."""
    folder = write_plugin(name.removeprefix("enginehouse-"), directory, [kind.strip() for kind in kinds.split(",")])
    click.echo(f"{folder}\ntry: cd {folder} && pip install --editable '.[test]' && pytest")
