"""Turns the plain data of a TOML document into the data of a ``Config`` and collects all problems on the way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import msgspec
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    FloatType,
    IntType,
    ListType,
    StrType,
    StructType,
    Type,
)

from enginehouse.config.schema import DiscoverySettings, PluginSettings
from enginehouse.config.secrets import Secret, refuse_mask
from enginehouse.config.shape import Path, Shape, has_parameters, shape_of
from enginehouse.config.units import MEASURES
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.names import did_you_mean


class Problem(NamedTuple):
    """A problem at one place of a configuration."""

    path: Path
    text: str
    remedy: str = ""
    error: type[ConfigError] = ConfigError


def gather_parameters(data: dict[str, Any]) -> None:
    """Move parameters of plugins to where the schema expects them.

    ``[plugins.TYPE]`` becomes ``plugins.parameters.TYPE``, and what only a discoverer knows of ``[discovery.NAME]``
    becomes ``discovery.NAME.parameters``.
    """
    if isinstance(plugins := data.get("plugins"), dict):
        data["plugins"] = _gathered(plugins, PluginSettings, lambda value: isinstance(value, dict))
    if isinstance(discovery := data.get("discovery"), dict):
        data["discovery"] = {
            name: _gathered(table, DiscoverySettings) if isinstance(table, dict) else table
            for name, table in discovery.items()
        }


def _gathered(
    table: dict[str, Any], type_: type[msgspec.Struct], moves: Callable[[Any], bool] = lambda _: True
) -> dict[str, Any]:
    """``table`` with the keys that ``type_`` does not have, and whose values move, in ``parameters``."""
    own = set(type_.__struct_fields__) - {"parameters"}
    moved = {name: value for name, value in table.items() if name not in own and moves(value)}
    return {"parameters": moved, **{name: value for name, value in table.items() if name not in moved}}


class Decoder:
    """Checks data against the schema, turns durations and sizes into numbers, and reads secrets.

    ``secret`` reads a secret and may raise ``SecretError``. Problems are added to ``problems``; if there are any, the
    decoded data must not be used.
    """

    def __init__(self, secret: Callable[[str], Secret]) -> None:
        self.problems: list[Problem] = []
        self._secret = secret

    def read(self, type_: Type, value: Any, path: Path = ()) -> Any:
        """Decode ``value`` so that ``msgspec.convert`` accepts it as a ``type_``."""
        shape = shape_of(type_)
        for kind in shape.kinds:
            if isinstance(kind, StructType) and isinstance(value, dict):
                return self._read_struct(kind, value, path)
            if isinstance(kind, DictType) and isinstance(value, dict):
                return {name: self.read(kind.value_type, item, (*path, name)) for name, item in value.items()}
            if isinstance(kind, ListType) and isinstance(value, list) and len(value) >= (kind.min_length or 0):
                return [self.read(kind.item_type, item, (*path, index)) for index, item in enumerate(value)]
        return self._read_scalar(shape, value, path)

    def _read_struct(self, kind: StructType, table: dict[str, Any], path: Path) -> dict[str, Any]:
        fields = {field.encode_name: field for field in kind.fields}
        known = sorted(name for name in fields if not (name == "parameters" and has_parameters(path)))
        for name in (name for name in table if name not in fields):
            remedy = did_you_mean(name, known) or _in_a_table(name, kind) or f"known here: {', '.join(known)}"
            self.problems.append(Problem((*path, name), "unknown key", remedy))
        for name, field in fields.items():
            if field.required and name not in table:
                shape = shape_of(field.type)
                self.problems.append(Problem((*path, name), "is missing", f"give it {shape}: {shape.description}"))
        return {name: self.read(fields[name].type, table[name], (*path, name)) for name in fields if name in table}

    def _read_scalar(self, shape: Shape, value: Any, path: Path) -> Any:
        try:
            if shape.secret and isinstance(value, str):
                return self._secret(value)
            if shape.hidden and isinstance(value, str):
                refuse_mask(value, 'put the value itself here, or "${env:NAME}"')
            if shape.unit and _is_measure(shape, value):
                return _measure(shape, str(value))
        except ValueError as error:
            self.problems.append(Problem(path, str(error), getattr(error, "remedy", "")))
            return None
        if not shape.unit and any(_accepts(kind, shape, value) for kind in shape.kinds):
            return value
        expected = f"{shape} of another form" if _has_another_form(shape, value) else str(shape)
        self.problems.append(Problem(path, f"expected {expected}, got {_show(shape, value)}", _remedy(shape, value)))
        return None


def _in_a_table(name: str, kind: StructType) -> str:
    """The remedy for a key that belongs into a table of ``kind``; empty if none has such a key."""
    for field in kind.fields:
        for inner in shape_of(field.type).kinds:
            if isinstance(inner, StructType) and name in (each.encode_name for each in inner.fields):
                return f"write it below [{field.encode_name}]"
    return ""


def _measure(shape: Shape, text: str) -> float:
    """The number that ``text`` with a unit means. Raises ``ValueError`` if it is none, or too small."""
    number = MEASURES[shape.unit](text)
    least = min((kind.ge or 0 for kind in shape.kinds if isinstance(kind, IntType | FloatType)), default=0)
    if number < least:
        raise ValueError(f"expected {least * 1000:g} ms or more, got {json.dumps(text)}")
    return number


def _is_measure(shape: Shape, value: Any) -> bool:
    # a bare number of bytes is clear; of a duration, only 0 is: others would be taken for seconds or for milliseconds
    return isinstance(value, str) or (type(value) is int and value >= 0 and (value == 0 or shape.unit == "size"))


def _accepts(kind: Type, shape: Shape, value: Any) -> bool:
    if isinstance(kind, AnyType):
        return True
    if isinstance(kind, IntType | FloatType):
        numbers = (int,) if isinstance(kind, IntType) else (int, float)
        return type(value) in numbers and -inf < value < inf and _keeps_limits(kind, value)
    if isinstance(kind, BoolType):
        return isinstance(value, bool)
    return isinstance(value, str) and (_fits(kind, value) if isinstance(kind, StrType) else value in shape.choices)


def _fits(kind: StrType, text: str) -> bool:
    return len(text) >= (kind.min_length or 0) and (kind.pattern is None or re.search(kind.pattern, text) is not None)


def _has_another_form(shape: Shape, value: Any) -> bool:
    return isinstance(value, str) and not shape.choices and any(isinstance(kind, StrType) for kind in shape.kinds)


def _keeps_limits(kind: IntType | FloatType, value: float) -> bool:
    above = kind.gt is None or value > kind.gt
    return above and (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _show(shape: Shape, value: Any) -> str:
    """``value`` as an error shows it. Where it may be a misplaced secret, only its type is shown."""
    if isinstance(value, list | dict):
        return ("a list" if value else "an empty list") if isinstance(value, list) else "a table"
    if not isinstance(value, str | int | float):
        return "a date or a time"
    if shape.secret or shape.hidden or isinstance(shape.kinds[0], StructType | DictType | ListType):
        return "a string" if isinstance(value, str) else "a number"
    return json.dumps(value, ensure_ascii=False)


def _remedy(shape: Shape, value: Any) -> str:
    if shape.choices:
        return did_you_mean(str(value), list(shape.choices))
    if shape.unit == "duration" and type(value) in (int, float) and value > 0:
        return f'for seconds write "{value}s"'
    if isinstance(shape.kinds[0], StrType) and isinstance(value, int | float):
        return "write it in quotes"
    if _has_another_form(shape, value):
        return shape.description
    return "write it without quotes" if isinstance(value, str) and _is_quoted(shape, value) else ""


def _is_quoted(shape: Shape, text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return any(_accepts(kind, shape, value) for kind in shape.kinds)
