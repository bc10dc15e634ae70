"""Write the generated pages of this folder: ``python docs/generate.py``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from inspect import cleandoc
from pathlib import Path
from runpy import run_path
from typing import cast

import click
from msgspec.inspect import DictType, Field, ListType, StructType

from enginehouse.cli import enginehouse
from enginehouse.config.schema import PluginSettings
from enginehouse.config.shape import PARAMETERS, config_type, shape_of
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse_offline.render import default_of

DOCS = Path(__file__).parent
CONFIGURATION = """\
# Configuration reference

This page lists every table and key of `enginehouse.toml`. [Configure the gateway](../how-to/configure.md) shows how to
use them, and `enginehouse schema` prints them as a JSON schema.

A *duration* is a number with a unit (`ms`, `s`, `m`, `h` or `d`), such as `"500ms"` or `"10m"`, or `"0"`. A *size* is a
number with a unit (`KiB`, `MiB`, `GiB`, `TiB`, `kB`, `MB`, `GB` or `TB`), such as `"24GiB"`, or a number of bytes.
"""
_TOP = """\
`guards` and `interceptors` stand before the first table. The others are tables whose keys the plugins know."""
PLUGIN_TABLES = """\
## `[plugins.TYPE]`

The parameters of the plugin type `TYPE`: [Bundled plugins](plugins.md), or the plugin's own documentation, lists them.
`[plugins.KIND.TYPE]` replaces this table for [one kind](../how-to/configure.md#parameters-of-plugins).
"""
COMMAND_LINE = "# Command line reference\n"


def configuration() -> str:
    """The page of all tables and keys."""
    return "\n".join([CONFIGURATION, *_sections(config_type(), ""), PLUGIN_TABLES])


def _sections(struct: StructType, name: str) -> Iterator[str]:
    rows = [_row(field) for field in struct.fields if _has_row(field, name)]
    if rows:
        heading = f"## `[[{name.removesuffix('[]')}]]`" if name.endswith("[]") else f"## `[{name}]`"
        lines = [
            heading if name else "## The top of the file",
            "",
            cleandoc(struct.cls.__doc__ or "") if name else _TOP,
            "",
            "| key | takes | default | |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
        yield "\n".join(lines)
    for field in struct.fields:
        if below := _table_below(field):
            suffix, table = below
            yield from _sections(table, f"{name}.{field.encode_name}".lstrip(".") + suffix)


def _has_row(field: Field, section: str) -> bool:
    """Whether ``field`` is a key with a row, not only the name of tables that have sections of their own."""
    kinds = shape_of(field.type).kinds
    mixed = any(isinstance(kind, ListType) and len(shape_of(kind.item_type).kinds) > 1 for kind in kinds)
    only_tables = len(kinds) == 1 and not mixed and _table_below(field) is not None
    return not only_tables and (section, field.encode_name) != PARAMETERS


def _table_below(field: Field) -> tuple[str, StructType] | None:
    """The table that ``field`` is or holds, and the suffix of its name."""
    for kind in shape_of(field.type).kinds:
        if isinstance(kind, StructType):
            return "", kind
        if isinstance(kind, DictType) and isinstance(kind.value_type, StructType):
            return ".NAME", kind.value_type
        for item in shape_of(kind.item_type).kinds if isinstance(kind, ListType) else ():
            if isinstance(item, StructType):
                return "[]", item
    return None


def _row(field: Field) -> str:
    shape, default = shape_of(field.type), default_of(field)
    takes = shape.unit or str(shape).removeprefix("a ")
    written = "required" if field.required else "" if default is None else f"`{_cell(json.dumps(default))}`"
    return f"| `{field.encode_name}` | {takes} | {written} | {_cell(shape.description)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def command_line() -> str:
    """The page of all commands, those of bundled plugins included."""
    registry = load_plugins(PluginSettings(enabled=[])).registry
    commands = dict(_commands(enginehouse, "enginehouse"))
    for type in registry.types("command"):
        commands |= _commands(registry.create("command", type), f"enginehouse {type}")
    return "\n".join([COMMAND_LINE, *(_command(commands[name], name) for name in sorted(commands))])


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The command and those below it, by their whole names."""
    yield name, command
    if isinstance(command, click.Group):
        for child in command.commands:
            yield from _commands(command.commands[child], f"{name} {child}")


def _command(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, **command.context_settings)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f"## `{name}`", "", "```", usage, "```", "", cleandoc(command.help or ""), ""]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if options:
        lines += ["| option | |", "|---|---|", *(_option(option, context) for option in options), ""]
    return "\n".join(lines)


def _option(option: click.Option, context: click.Context) -> str:
    flags, text = option.get_help_record(context) or ("", "")
    return f"| `{_cell(flags)}` | {_cell(text)} |"


def _from(module: str, page: str) -> Callable[[], str]:
    """What makes a page: the function ``page`` of a file in ``pages/``."""
    return lambda: cast(str, run_path(str(DOCS / f"pages/{module}.py"))[page]())


PAGES: dict[Path, Callable[[], str]] = {
    DOCS / "plugins.md": _from("known_plugins", "known_plugins_page"),
    DOCS / "reference/cli.md": command_line,
    DOCS / "reference/configuration.md": configuration,
    DOCS / "reference/engine-options.md": _from("engine_options", "engine_options_page"),
    DOCS / "reference/hooks.md": _from("hooks", "hooks_page"),
    DOCS / "reference/metrics.md": _from("metrics", "metrics_page"),
    DOCS / "reference/plugins.md": _from("plugins", "plugins_page"),
    DOCS / "reference/types.md": _from("types", "types_page"),
}
"""All generated pages. ``.gitignore`` lists them."""


if __name__ == "__main__":
    if missing := run_path(str(DOCS.parent / "tests/support/entry_points.py"))["missing_entry_points"]():
        raise SystemExit(f"not installed yet: {', '.join(missing)}; run `.venv/bin/pip install --no-deps --editable .`")
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
