"""Describes the values of a key: their types, their unit, and how paths to them are written."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    EnumType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from enginehouse.config.schema import Config

Path = tuple[str | int, ...]
"""The path of a value in a ``Config``: names of fields and entries, and positions in lists."""

PARAMETERS: Path = ("plugins", "parameters")
"""The path of all ``[plugins.TYPE]`` tables. Files and errors omit ``parameters``, here and in ``[discovery.NAME]``."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_UNITS = {"duration": 'a duration such as "500ms", "30s" or "10m"', "size": 'a size such as "512MiB" or "24GiB"'}


@cache
def config_type() -> StructType:
    """The type of a whole ``Config``. To describe it takes 20 ms, which not every command needs."""
    return cast(StructType, type_info(Config))


@dataclass(frozen=True)
class Shape:
    """The values of one key: of one of ``kinds``, in ``unit`` (``duration``, ``size`` or empty).

    ``secret``: they are secrets. ``hidden``: they may be.
    """

    kinds: tuple[Type, ...]
    unit: str = ""
    secret: bool = False
    hidden: bool = False
    description: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values, if there is a finite list of them; else empty."""
        for kind in self.kinds:
            if isinstance(kind, EnumType):
                return tuple(str(member.value) for member in kind.cls)
            if isinstance(kind, LiteralType):
                return tuple(map(str, kind.values))
        return ()

    def __str__(self) -> str:
        return _UNITS.get(self.unit) or " or ".join(_kind_text(self, kind) for kind in self.kinds)


def shape_of(type_: Type) -> Shape:
    """``type_`` without its annotations and without ``None``."""
    known = _shapes.get(id(type_))
    if known is None:
        known = _shapes[id(type_)] = type_, _shape_of(type_)
    return known[1]


_shapes: dict[int, tuple[Type, Shape]] = {}
"""By the identity of types, which cannot be hashed and are kept so that it stays theirs."""


def _shape_of(type_: Type) -> Shape:
    if isinstance(type_, Metadata):
        inner, extra, schema = shape_of(type_.type), type_.extra or {}, type_.extra_json_schema or {}
        return replace(
            inner,
            unit=extra.get("unit", inner.unit),
            secret=extra.get("secret", inner.secret),
            hidden=extra.get("hidden", inner.hidden),
            description=schema.get("description", inner.description),
        )
    if isinstance(type_, UnionType):
        shapes = [shape_of(option) for option in type_.types if not isinstance(option, NoneType)]
        return replace(shapes[0], kinds=tuple(kind for shape in shapes for kind in shape.kinds))
    return Shape((type_,))


def has_parameters(table: Path) -> bool:
    """Whether keys that the schema does not know may stand in ``table``, as parameters of a plugin."""
    return table == PARAMETERS[:1] or (len(table) == 2 and table[0] == "discovery")


def written(path: Path) -> Path:
    """``path`` as in the file."""
    for length in (1, 2):
        if has_parameters(path[:length]) and path[length : length + 1] == ("parameters",) and len(path) > length + 1:
            return (*path[:length], *path[length + 1 :])
    return path


def dotted(path: Path) -> str:
    """``path`` in TOML's notation, with list positions in brackets: ``auth.keys[0].name``."""
    text = ""
    for part in written(path):
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += "." * bool(text) + (part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False))
    return text


def _kind_text(shape: Shape, kind: Type) -> str:
    if isinstance(kind, IntType | FloatType):
        return ("a whole number" if isinstance(kind, IntType) else "a number") + _range_text(kind)
    if isinstance(kind, LiteralType | EnumType):
        return "one of " + ", ".join(f'"{choice}"' for choice in shape.choices)
    if isinstance(kind, ListType):
        of = {StructType: "tables", IntType: "whole numbers"}
        return f"a list of {of.get(type(shape_of(kind.item_type).kinds[0]), 'strings')}"
    names: dict[type[Type], str] = {StrType: "a string", BoolType: "true or false", AnyType: "any value"}
    names |= {DictType: "a table", StructType: "a table"}
    return names[type(kind)]


def _range_text(kind: IntType | FloatType) -> str:
    if kind.gt is not None:
        return f" above {kind.gt:g}"
    if kind.ge is None:
        return ""
    return f", {kind.ge} or more" if kind.le is None else f" from {kind.ge} to {kind.le}"
