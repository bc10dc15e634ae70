"""Writes ``docs/reference/engine-options.md``: the options of the bundled drivers."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getdoc
from typing import cast

from msgspec.inspect import Field, StructType, type_info

from enginehouse.config.schema import PluginSettings
from enginehouse.config.shape import shape_of
from enginehouse.interfaces.driver_support import support_of
from enginehouse.interfaces.drivers import SupportsLaunch
from enginehouse.plugin_manager.discovery import load_plugins

_HEAD = """\
# Engine options

The keys of `[models.NAME.options]`, by driver. They become arguments of the launch line that the driver makes, so they
have no effect beside `command`. `args` is for everything that is not here.
"""


def engine_options_page() -> str:
    """The whole page."""
    registry = load_plugins(PluginSettings(enabled=[])).registry
    drivers = {type: support_of(registry.create("driver", type)).launch for type in registry.types("driver")}
    return "\n".join([_HEAD, *(line for type, driver in drivers.items() for line in _section(type, driver))])


def _section(type: str, driver: SupportsLaunch) -> Iterator[str]:
    struct = cast(StructType, type_info(driver.Options))
    if struct.fields:
        about = getdoc(driver.Options)
        yield f"## `{type}`\n\n{about}\n\n| option | takes | |\n|---|---|---|"
        yield from map(_row, struct.fields)
        yield ""


def _row(field: Field) -> str:
    shape = shape_of(field.type)
    return f"| `{field.encode_name}` | {str(shape).removeprefix('a ')} | {shape.description} |"
