"""A subset of JSON Schema as expressions.

Supported: ``type`` (one or several), ``properties``, ``required``, ``additionalProperties``, ``items``, ``minItems``,
``maxItems``, ``minLength``, ``maxLength``, ``enum``, ``const``, ``anyOf``, and ``$ref`` within the schema. Properties
come in the order of their declaration, others only if none are declared. Fixed values have the spelling of
``json.dumps`` without spaces. ``format`` is an annotation, as in the standard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enginehouse_sim.simulator.grammar import json_text
from enginehouse_sim.simulator.grammar.expressions import (
    EMPTY,
    Chain,
    Choice,
    Expression,
    Reference,
    literal,
)

_NAMES = {"$schema", "$id", "$comment", "$defs", "definitions", "title"}
_NOTES = _NAMES | {"description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly"}
_BY_TYPE = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("minLength", "maxLength"),
    "integer": (),
    "number": (),
    "boolean": (),
    "null": (),
}
_MOST = 5000
_TYPED = {"type"}.union(*_BY_TYPE.values())
_TOGETHER = {"$ref": {"$ref"}, "anyOf": {"anyOf"}, "const": {"const", "type"}, "enum": {"enum", "type"}}
_PYTHON_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_SIMPLE = {
    "integer": json_text.INTEGER,
    "number": json_text.NUMBER,
    "boolean": json_text.BOOLEAN,
    "null": json_text.NULL,
}


def compile_schema(schema: Any) -> Expression:
    """The expression of ``schema``. Raises ``ValueError``, which names unsupported keywords."""
    return _Compiler(schema).value(schema)


class _Compiler:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._references: dict[str, Reference] = {}

    def value(self, schema: Any) -> Expression:
        if schema is True:
            return json_text.VALUE
        if not isinstance(schema, dict):
            raise ValueError(f"a schema is an object, not {schema!r}")
        said = schema.keys() - _NOTES
        kind = next((one for one in _TOGETHER if one in said), "type")
        if unknown := sorted(said - _TOGETHER.get(kind, _TYPED)):
            raise ValueError(f"{', '.join(unknown)}: not understood here; leave it out of the schema")
        if kind == "$ref":
            return self._reference(schema["$ref"])
        if kind == "anyOf":
            return Choice(*(self.value(one) for one in _several(schema["anyOf"], "anyOf")))
        return self._typed(schema) if kind == "type" else _fixed(schema)

    def _reference(self, path: Any) -> Expression:
        if not isinstance(path, str) or not path.startswith("#"):
            raise ValueError(f"$ref: {path!r} is not in this schema")
        if path not in self._references:
            self._references[path] = reference = Reference()
            reference.target = self.value(self._at(path))
        return self._references[path]

    def _at(self, path: str) -> Any:
        schema = self._root
        for step in path.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, dict) or name not in schema:
                raise ValueError(f"$ref: there is no {path}")
            schema = schema[name]
        return schema

    def _typed(self, schema: dict[str, Any]) -> Expression:
        types = _types(schema) or [name for name, keys in _BY_TYPE.items() if any(key in schema for key in keys)]
        return Choice(*(self._of_type(name, schema) for name in types)) if types else json_text.VALUE

    def _of_type(self, name: str, schema: dict[str, Any]) -> Expression:
        if name == "object":
            return self._object(schema)
        if name == "array":
            return json_text.array_of(self.value(schema.get("items", True)), *_limits(schema, "minItems", "maxItems"))
        if name == "string":
            return json_text.string_of(*_limits(schema, "minLength", "maxLength"))
        return _SIMPLE[name]

    def _object(self, schema: dict[str, Any]) -> Expression:
        properties, required = schema.get("properties", {}), _names(schema.get("required", []), "required")
        if not isinstance(properties, dict):
            raise ValueError("properties is an object")
        others = schema.get("additionalProperties", True)
        missing = [name for name in required if name not in properties]
        if others is False and missing:
            raise ValueError(f"required: {', '.join(missing)} is not allowed by additionalProperties")
        every = {**properties, **dict.fromkeys(missing, others)}
        if not every:
            return json_text.object_of(EMPTY) if others is False else json_text.map_of(self.value(others))
        members = [(json_text.member(_spelled(name), self.value(of)), name in required) for name, of in every.items()]
        return json_text.object_of(_members(members))


def _members(members: Sequence[tuple[Expression, bool]]) -> Expression:
    """All members in order. A text may leave out optional members."""
    comma = Chain(literal(","), json_text.SPACE)
    first: Expression = EMPTY  # the rest, if no member came before
    after: Expression = EMPTY  # the rest otherwise
    for one, required in reversed(members):
        alone = Chain(one, after)
        joined = Chain(comma, alone)
        first = alone if required else Choice(alone, first)
        after = joined if required else Choice(joined, after)
    return first


def _fixed(schema: dict[str, Any]) -> Expression:
    values = [schema["const"]] if "const" in schema else _several(schema["enum"], "enum")
    types = _types(schema) or list(_PYTHON_TYPES)
    allowed = [value for value in values if any(_PYTHON_TYPES[name](value) for name in types)]
    if not allowed:
        raise ValueError(f"none of the values {values!r} is of type {', '.join(types)}")
    return Choice(*map(_spelled, allowed))


def _types(schema: dict[str, Any]) -> list[str]:
    if "type" not in schema:
        return []
    said = schema["type"]
    names = [said] if isinstance(said, str) else _several(_names(said, "type"), "type")
    for name in names:
        if name not in _BY_TYPE:
            raise ValueError(f"type: there is no {name!r}")
    return names


def _limits(schema: dict[str, Any], least: str, most: str) -> tuple[int, int | None]:
    low, high = schema.get(least, 0), schema.get(most)
    for keyword, limit in ((least, low), (most, high)):
        if limit is not None and not (isinstance(limit, int) and 0 <= limit <= _MOST):
            raise ValueError(f"{keyword} is a number from 0 to {_MOST}")
    if high is not None and high < low:
        raise ValueError(f"{least} is {low}, more than {most}, which is {high}")
    return low, high


def _names(values: Any, keyword: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{keyword} is a list of names")
    return values


def _several(values: Any, keyword: str) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise ValueError(f"{keyword} is a list with something in it")
    return values


def _spelled(value: Any) -> Expression:
    return literal(json.dumps(value, separators=(",", ":")))
