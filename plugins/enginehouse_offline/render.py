"""A configuration as TOML, as a page for people, and ``enginehouse schema``: its JSON schema, for editors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec
import tomli_w
from msgspec.inspect import DictType, EnumType, Field, ListType, StructType, Type

from enginehouse import format_duration
from enginehouse.backends import DiscoverySettings
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.config.secrets import MASK, Secret
from enginehouse.config.shape import config_type, shape_of
from enginehouse.config.units import format_size
from enginehouse_offline.masks import masked_arguments, masked_line, masked_parameters, masked_url, shown

_ALWAYS = {("server", "host"), ("server", "port"), ("routing", "strategy"), ("routing", "weights")}
"""Keys that are shown even with default values: the address, the strategy and the like."""


def page(written: Mapping[str, Any], changed: Mapping[str, Any]) -> str:
    """The values ``changed``, and some others that are ``written``, as TOML."""
    alone = {name: value for name, value in changed.items() if not isinstance(value, dict)}
    sections = ["".join(_lines(alone))] if alone else []
    for name, table in written.items():
        if not isinstance(table, dict):
            continue
        told = changed.get(name, {})
        shown = {key: told.get(key, table[key]) for key in table if key in told or (name, key) in _ALWAYS}
        if shown or (name in changed and not table):  # a table that says something by being there
            sections.append(f"[{name}]\n{''.join(_lines(shown))}")
    return "\n".join(sections)


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{_key(key)} = {_inline(value)}\n"


def _inline(value: Any) -> str:
    """``value`` on one line; tables in an array on a line each."""
    if isinstance(value, dict):
        entries = ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        items = [_inline(item) for item in value]
        of_tables = value and all(isinstance(item, dict) for item in value)
        return "[\n" + "".join(f"    {item},\n" for item in items) + "]" if of_tables else f"[{', '.join(items)}]"
    return tomli_w.dumps({"_": value})[len("_ = ") : -1]


def _key(key: str) -> str:
    return tomli_w.dumps({key: 0})[: -len(" = 0\n")]


_UNIT_SCHEMAS: dict[str, dict[str, Any]] = {
    "duration": {
        "type": "string",
        "pattern": r"^([0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)|0)$",
        "examples": ["500ms", "30s", "10m"],
    },
    "size": {
        "type": "string",
        "pattern": r"^[0-9]+(\.[0-9]+)? ?([kKMGT]i?)?B?$",
        "examples": ["512MiB", "24GiB"],
    },
}


def effective(config: Config) -> str:
    """``config`` as TOML that loads to the same configuration, except for possible secrets, which are masked."""
    return tomli_w.dumps(effective_data(config))


def effective_data(config: Config) -> dict[str, Any]:
    """``effective``, as data."""
    data: dict[str, Any] = as_written(config_type(), config)
    for model in data["models"].values():
        model |= {key: masked_line(model[key]) for key in ("command", "stop_command")}
        model["args"] = masked_arguments(model["args"])
    for name, source in config.discovery.items():
        data["discovery"][name] |= masked_parameters(source.parameters)
    data["services"] |= {name: masked_parameters(table) for name, table in config.services.items()}
    if config.batches is not None:
        data["batches"] = masked_parameters(config.batches)
    for each in (*data["guards"], *data["interceptors"]):
        if isinstance(each, dict):
            each["parameters"] = masked_parameters(each["parameters"])
    data["plugins"] |= {name: masked_parameters(table) for name, table in config.plugins.parameters.items()}
    return data


def as_written(type_: Type, value: Any) -> Any:
    """``value`` of type ``type_`` as in the file. Tables omit keys without a value."""
    shape = shape_of(type_)
    if shape.unit:
        return format_duration(value) if shape.unit == "duration" else format_size(value)
    if shape.secret:
        return (isinstance(value, Secret) and value.reference) or (MASK if value else "")
    if shape.hidden:
        return shown(value)
    for kind in shape.kinds:
        if isinstance(kind, StructType) and isinstance(value, kind.cls):
            return _table(kind, value)
        if isinstance(kind, DictType) and isinstance(value, dict):
            return {name: as_written(kind.value_type, item) for name, item in value.items()}
        if isinstance(kind, ListType) and isinstance(value, list):
            return [as_written(kind.item_type, item) for item in value]
    if isinstance(value, str):
        return masked_url(value)
    return value.value if isinstance(shape.kinds[0], EnumType) else value


def _table(kind: StructType, value: Any) -> dict[str, Any]:
    fields = ((field, getattr(value, field.name)) for field in kind.fields)
    table = {field.encode_name: as_written(field.type, item) for field, item in fields if item is not None}
    if kind.cls in (PluginSettings, DiscoverySettings):
        table |= table.pop("parameters")
    return table


def default_of(field: Field) -> Any:
    """The default of ``field``, as in the file; ``None`` if it has none."""
    if field.default is not msgspec.NODEFAULT:
        value = field.default
    else:
        value = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else None
    return None if value is None else as_written(field.type, value)


def changed(written: dict[str, Any]) -> dict[str, Any]:
    """The part of ``written``, a whole configuration as in the file, that differs from the defaults."""
    found: dict[str, Any] = _changed(config_type(), written)
    return found


def _changed(type_: Type, written: Any) -> Any:
    """The part of ``written``, a value of ``type_`` as in the file, that differs from the defaults."""
    for kind in shape_of(type_).kinds:
        if isinstance(kind, StructType) and isinstance(written, dict):
            fields = {field.encode_name: field for field in kind.fields}
            return {
                key: _changed(fields[key].type, value) if key in fields else value
                for key, value in written.items()
                if key not in fields or value != default_of(fields[key])
            }
        if isinstance(kind, DictType) and isinstance(written, dict):
            return {name: _changed(kind.value_type, item) for name, item in written.items()}
        if isinstance(kind, ListType) and isinstance(written, list):
            return [_changed(kind.item_type, item) for item in written]
    return written


def json_schema() -> dict[str, Any]:
    """The JSON schema of the file. Durations and sizes are text there, and each plugin type may have a table."""
    schema = msgspec.json.schema(Config)
    definitions = schema["$defs"]
    for struct in _structs(config_type()):
        properties = definitions[struct.cls.__name__]["properties"]
        for field in struct.fields:
            properties[field.encode_name] = _property(field, properties[field.encode_name])
    plugins, discovery = definitions["PluginSettings"], definitions["DiscoverySettings"]
    parameters = plugins["properties"].pop("parameters")
    plugins["additionalProperties"] = {"type": "object", "description": parameters["description"]}
    parameters = discovery["properties"].pop("parameters")
    discovery["additionalProperties"] = {"description": parameters["description"]}
    return schema


def _property(field: Field, schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of one key, made from msgspec's. TOML has no ``null``, so that option is removed."""
    shape, default = shape_of(field.type), default_of(field)
    if shape.unit:
        schema = {**_UNIT_SCHEMAS[shape.unit], "description": shape.description}
    options = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
    schema |= options[0] if len(options) == 1 else {"anyOf": options} if options else {}
    schema.pop("default", None)
    wanted = default is not None and not isinstance(shape.kinds[0], StructType)
    return {**schema, "default": default} if wanted else schema


def _structs(type_: Type) -> Iterator[StructType]:
    for kind in shape_of(type_).kinds:
        if isinstance(kind, StructType):
            yield kind
            for field in kind.fields:
                yield from _structs(field.type)
        elif isinstance(kind, DictType):
            yield from _structs(kind.value_type)
        elif isinstance(kind, ListType):
            yield from _structs(kind.item_type)


@click.command()
def schema() -> None:
    """Print the JSON schema of enginehouse.toml, for editors."""
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
