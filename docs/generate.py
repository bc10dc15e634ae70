"""Write the generated pages of this folder: ``python docs/generate.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from runpy import run_path

import click
from msgspec.inspect import DictType, Field, ListType, StructType

from enginehouse.cli import enginehouse
from enginehouse.config.render import default_of
from enginehouse.config.shape import CONFIG, PARAMETERS, shape_of

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py: change the source, then run `make docs`. -->"
CONFIGURATION = f"""\
# Configuration reference

{NOTE}

Every table and key of `enginehouse.toml`. How to use them: [Configure the gateway](../how-to/configure.md).
`enginehouse schema` prints the same as a JSON schema.

A *duration* is a number with `ms`, `s`, `m`, `h` or `d`, such as `"500ms"` or `"10m"`, or `"0"`.
A *size* is a number with `KiB`, `MiB`, `GiB`, `TiB`, `kB`, `MB`, `GB` or `TB`, such as `"24GiB"`, or plain bytes.
"""
PLUGIN_TABLES = """\
## `[plugins.NAME]`

Parameters of the installed plugin `NAME`; the plugin says which there are.
"""
COMMAND_LINE = f"""\
# Command line reference

{NOTE}
"""


def configuration() -> str:
    """The page about every section and key."""
    return "\n".join([CONFIGURATION, *_sections(CONFIG, ""), PLUGIN_TABLES])


def _sections(struct: StructType, name: str) -> Iterator[str]:
    rows = [_row(field) for field in struct.fields if _has_row(field, name)]
    if name and rows:
        heading = f"## `[[{name.removesuffix('[]')}]]`" if name.endswith("[]") else f"## `[{name}]`"
        lines = [
            heading,
            "",
            str(struct.cls.__doc__),
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
    """Whether it is a key of its own, not only the name of tables with sections of their own."""
    only_tables = len(shape_of(field.type).kinds) == 1 and _table_below(field) is not None
    return not only_tables and (section, field.encode_name) != PARAMETERS


def _table_below(field: Field) -> tuple[str, StructType] | None:
    """The table that ``field`` is or holds, and how its name goes on."""
    for kind in shape_of(field.type).kinds:
        if isinstance(kind, StructType):
            return "", kind
        if isinstance(kind, DictType) and isinstance(kind.value_type, StructType):
            return ".NAME", kind.value_type
        if isinstance(kind, ListType) and isinstance(kind.item_type, StructType):
            return "[]", kind.item_type
    return None


def _row(field: Field) -> str:
    shape, default = shape_of(field.type), default_of(field)
    takes = shape.unit or str(shape).removeprefix("a ")
    written = "required" if field.required else "" if default is None else f"`{json.dumps(default)}`"
    return f"| `{field.encode_name}` | {takes} | {written} | {_cell(shape.description)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def command_line() -> str:
    """The page about every command."""
    return "\n".join([COMMAND_LINE, *_commands(enginehouse, "enginehouse")])


def _commands(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f"## `{name}`", "", "```", usage, "```", "", cleandoc(command.help or ""), ""]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if options:
        lines += ["| option | |", "|---|---|", *map(_option, options), ""]
    yield "\n".join(lines)
    if isinstance(command, click.Group):
        for child in sorted(command.commands):
            yield from _commands(command.commands[child], f"{name} {child}")


def _option(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('x')))}"
    return f"| `{', '.join(option.opts)}{value}` | {_cell(option.help or '')} |"


def pages() -> dict[Path, str]:
    """Every generated page, by where it belongs."""
    return {
        DOCS / "reference/configuration.md": configuration(),
        DOCS / "reference/cli.md": command_line(),
        DOCS / "reference/hooks.md": run_path(str(DOCS / "pages/hooks.py"))["hooks_page"](),
        DOCS / "reference/plugins.md": run_path(str(DOCS / "pages/plugins.py"))["plugins_page"](),
    }


if __name__ == "__main__":
    for page, text in pages().items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
