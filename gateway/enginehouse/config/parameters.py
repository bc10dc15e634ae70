"""Parameters of plugins: their tables in the configuration, and their types."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec.inspect import LiteralType, StructType, type_info

from enginehouse.config.schema import PluginSettings
from enginehouse.config.shape import shape_of
from enginehouse.config.units import MEASURES
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.names import did_you_mean

T = TypeVar("T", bound=msgspec.Struct)
_MISSING = re.compile(r"Object missing required field `(.*)`")


class PluginTable(NamedTuple):
    """One table of parameters. ``kind`` is empty where the table is for every kind that has the type."""

    key: str
    kind: str
    type: str
    parameters: Mapping[str, Any]


def plugin_table(settings: PluginSettings, kind: str, type: str) -> PluginTable:
    """The parameters of ``type``: ``[plugins.KIND.TYPE]`` if there is such a table, else ``[plugins.TYPE]``."""
    own = settings.parameters.get(kind, {})
    if type in own:
        return PluginTable(f"plugins.{kind}.{type}", kind, type, own[type])
    return PluginTable(f"plugins.{type}", "", type, settings.parameters.get(type, {}))


def plugin_tables(settings: PluginSettings, kinds: Collection[str]) -> Iterator[PluginTable]:
    """Every table of parameters. The name of one of the ``kinds`` always begins ``[plugins.KIND.TYPE]``."""
    for name, table in settings.parameters.items():
        if name not in kinds:
            yield PluginTable(f"plugins.{name}", "", name, table)
            continue
        for type, parameters in table.items():
            yield PluginTable(f"plugins.{name}.{type}", name, type, parameters)


def decode_parameters(
    type: type[T] | None, values: Mapping[str, Any], *, table: str, owner: str, word: str = "parameter"
) -> T | None:
    """``values`` as a ``type``; ``None`` if that is ``None``, which allows no value.

    ``table``: the key of the table. ``owner``: whose parameters these are. ``word``: what one of them is called. Raises
    ``ConfigError`` for an unknown name, a missing one, and a wrong value.
    """
    check_names(type, values, table=table, owner=owner, word=word)
    if type is None:
        return None
    try:
        return msgspec.convert(_in_units(type, values, table), type)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        where = path.rstrip("`")
        if missing := _MISSING.fullmatch(problem):
            name = _join(where, missing[1])
            remedy = f"add '{name}' to [{table}]" if table else ""
            raise ConfigError(f"is missing; the {owner} needs it", key=_join(table, name), remedy=remedy) from error
        of = f"{word} '{where}' of" if where else f"{word}s of"
        choices = _choices(type, where)
        remedy = f"write {' or '.join(map(json.dumps, choices))}" if choices else ""
        raise ConfigError(f"{of} the {owner}: {problem}", key=_join(table, where), remedy=remedy) from error


def check_names(
    type: type[msgspec.Struct] | None, names: Iterable[str], *, table: str, owner: str, word: str = "parameter"
) -> None:
    """Raise ``ConfigError`` for one of ``names`` that ``type`` does not have; for the others: ``decode_parameters``."""
    known = type.__struct_encode_fields__ if type else ()
    for name in names:
        if name not in known:
            remedy = closest(name, known, "known") if known else f"it takes no {word}s"
            raise ConfigError(f"unknown {word} '{name}' of the {owner}", key=_join(table, name), remedy=remedy)


def closest(name: str, known: Iterable[str], what: str) -> str:
    """The remedy for a name that is not in ``known``; ``what`` introduces the list of known names."""
    names = list(known)
    return f"{did_you_mean(name, names)} {what}: {', '.join(names)}".lstrip()


def _in_units(type: type[msgspec.Struct], values: Mapping[str, Any], table: str) -> dict[str, Any]:
    """``values`` with durations and sizes as numbers. Raises ``ConfigError`` for text that is none."""
    read = dict(values)
    if not any(isinstance(value, str) for value in values.values()):
        return read  # to look at a small type takes 0.1 ms, at a large one more
    for field in cast(StructType, type_info(type)).fields:
        name, unit = field.encode_name, shape_of(field.type).unit
        if unit and isinstance(values.get(name), str):
            try:
                read[name] = MEASURES[unit](values[name])
            except ValueError as error:
                raise ConfigError(str(error), key=_join(table, name)) from None
    return read


def _choices(type: type[msgspec.Struct], name: str) -> list[Any]:
    """The values that the field ``name`` may have, if there is a finite list of them; else empty."""
    fields = cast(StructType, type_info(type)).fields
    kinds = [kind for field in fields if field.encode_name == name for kind in shape_of(field.type).kinds]
    return [value for kind in kinds if isinstance(kind, LiteralType) for value in kind.values]


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)
