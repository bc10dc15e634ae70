"""Structured output: one valid text for each grammar, which the engine writes token by token.

An engine with a model chooses among all texts that a grammar allows. The simulated one knows a single one of them, so
that it needs no automaton.

Of JSON Schema it understands ``type`` (one or several), ``properties``, ``required``, ``additionalProperties``,
``items``, ``minItems``, ``maxItems``, ``minLength``, ``maxLength``, ``enum``, ``const``, ``anyOf``, and ``$ref`` within
the schema. ``format`` is an annotation, as in the standard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, cycle, islice
from typing import Any

import msgspec

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.model.text import EOS, WORDS, encode

JSON_OBJECT = "json_object"
"""The grammar of any JSON object: OpenAI's JSON mode."""
_CHOICE = "choice:"
_DEEPEST = 32
_OPTIONAL_UP_TO = 3
"""The depth from which an object has required members only, so that a schema that contains itself comes to an end."""
_MOST = 5000
"""The longest string, and the longest array."""
_NOTES = {
    *("$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples"),
    *("format", "deprecated", "readOnly", "writeOnly"),
}
_KEYWORDS = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("minLength", "maxLength"),
    "integer": (),
    "number": (),
    "boolean": (),
    "null": (),
}
_TOGETHER = {"$ref": {"$ref"}, "anyOf": {"anyOf"}, "const": {"const", "type"}, "enum": {"enum", "type"}}
_SIMPLE: Mapping[str, Any] = {"integer": 42, "number": 2.5, "boolean": True, "null": None}
_PYTHON_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}


class GrammarManager:
    """Keeps the text of each request that has a grammar, as vLLM's ``StructuredOutputManager`` keeps its matchers."""

    def __init__(self) -> None:
        self._texts: dict[str, Sequence[int]] = {}

    def is_ready(self, request: RequestState) -> bool:
        """Whether the grammar is compiled.

        Raises ``ValueError`` if it cannot be, or if its text is not that of the outputs that the request came with.
        """
        if request.structured_output is not None and request.request_id not in self._texts:
            text = valid_tokens(request.structured_output)
            if list(text[: len(request.output_token_ids)]) != request.output_token_ids:
                raise ValueError(
                    f"The grammar of request {request.request_id} does not allow the answer that it has so far"
                )
            self._texts[request.request_id] = text
        return True

    def grammar_bitmask(
        self, requests: Sequence[RequestState], scheduled_spec_tokens: Mapping[str, Sequence[int]]
    ) -> tuple[Mapping[str, int], Sequence[frozenset[int]]]:
        """The index of each request's first row, and the rows of allowed tokens.

        A request with drafts has one row for each draft and one after the last.
        """
        first: dict[str, int] = {}
        rows: list[frozenset[int]] = []
        for request in requests:
            if request.request_id in self._texts:
                first[request.request_id] = len(rows)
                count = len(scheduled_spec_tokens.get(request.request_id, ())) + 1
                rows += [frozenset((token,)) for token in self._next(request, len(request.output_token_ids), count)]
        return first, rows

    def should_advance(self, request: RequestState) -> bool:
        """Whether the grammar must accept the request's outputs."""
        return request.request_id in self._texts

    def accept_tokens(self, request: RequestState, token_ids: Sequence[int]) -> bool:
        """Whether the last outputs of the request, ``token_ids``, are allowed."""
        begin = len(request.output_token_ids) - len(token_ids)
        return self._next(request, begin, len(token_ids)) == list(token_ids)

    def validate_tokens(self, request: RequestState, token_ids: Sequence[int]) -> Sequence[int]:
        """The drafts before the first one that the grammar does not allow."""
        allowed = self._next(request, len(request.output_token_ids), len(token_ids))
        same = (at for at, (one, other) in enumerate(zip(token_ids, allowed, strict=True)) if one != other)
        return token_ids[: next(same, len(token_ids))]

    def finished(self, request: RequestState) -> None:
        """Drop the request's state."""
        self._texts.pop(request.request_id, None)

    def _next(self, request: RequestState, begin: int, count: int) -> list[int]:
        """The tokens of the text from one on; after its end ``EOS``."""
        text = self._texts[request.request_id][begin : begin + count]
        return [*text, *[EOS] * (count - len(text))]


def choice_grammar(texts: Sequence[str]) -> str:
    """The name of the grammar of these ``texts``."""
    return _CHOICE + json.dumps(texts)


@lru_cache(maxsize=256)
def valid_tokens(grammar: str) -> Sequence[int]:
    """The tokens of a text that ``grammar`` allows, and ``EOS``.

    ``grammar``: ``JSON_OBJECT``, a JSON schema as text, or the name of a choice. Raises ``ValueError``.
    """
    try:
        return (*encode(_text(grammar)), EOS)
    except ValueError as error:
        raise ValueError(f"The grammar cannot be compiled: {error}") from None


def _text(grammar: str) -> str:
    if grammar.startswith(_CHOICE):
        return str(_several(json.loads(grammar.removeprefix(_CHOICE)), "choice")[0])
    if grammar == JSON_OBJECT:
        return json.dumps({WORDS[0]: " ".join(WORDS[1:4])})
    try:
        schema = msgspec.json.decode(grammar)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not a JSON schema: {error}") from None
    return json.dumps(_Schema(schema).value(schema))


class _Schema:
    """Makes a value for each part of a JSON schema. ``ValueError`` names what cannot be understood."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def value(self, schema: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply, or describes a value that contains itself without end")
        if schema is True:
            return WORDS[0]
        if not isinstance(schema, dict):
            raise ValueError(f"a schema is an object, not {schema!r}")
        said = schema.keys() - _NOTES
        kind = next((one for one in _TOGETHER if one in said), "type")
        if unknown := sorted(said - _TOGETHER.get(kind, {"type", *chain(*_KEYWORDS.values())})):
            raise ValueError(f"{', '.join(unknown)}: not understood here; leave it out of the schema")
        if kind == "$ref":
            return self.value(self._at(schema["$ref"]), depth + 1)
        if kind == "anyOf":
            return self._first(_several(schema["anyOf"], "anyOf"), depth)
        return self._typed(schema, depth) if kind == "type" else _fixed(schema)

    def _first(self, schemas: Sequence[Any], depth: int) -> Any:
        """A value of the first one that has an end here."""
        first, *others = schemas
        try:
            return self.value(first, depth + 1)
        except ValueError:
            if not others:
                raise
        return self._first(others, depth)

    def _at(self, path: Any) -> Any:
        if not isinstance(path, str) or not path.startswith("#"):
            raise ValueError(f"$ref: {path!r} is not in this schema")
        schema = self._root
        for step in path.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, dict) or name not in schema:
                raise ValueError(f"$ref: there is no {path}")
            schema = schema[name]
        return schema

    def _typed(self, schema: dict[str, Any], depth: int) -> Any:
        found = _types(schema) or [name for name, keys in _KEYWORDS.items() if any(key in schema for key in keys)]
        if not found:
            return WORDS[0]
        if found[0] == "object":
            return self._object(schema, depth)
        if found[0] == "array":
            least, most = _limits(schema, "minItems", "maxItems", 1 if depth < _OPTIONAL_UP_TO else 0)
            return [self.value(schema.get("items", True), depth + 1) for _ in range(min(least, most))]
        if found[0] == "string":
            least, most = _limits(schema, "minLength", "maxLength", 5)
            return "".join(islice(cycle(f"{' '.join(WORDS)} "), min(max(least, 5), most)))
        return _SIMPLE[found[0]]

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), _names(schema.get("required", []), "required")
        if not isinstance(properties, dict):
            raise ValueError("properties is an object")
        others = schema.get("additionalProperties", True)
        missing = [name for name in required if name not in properties]
        if others is False and missing:
            raise ValueError(f"required: {', '.join(missing)} is not allowed by additionalProperties")
        every = {**properties, **dict.fromkeys(missing, others)}
        wanted = every if depth < _OPTIONAL_UP_TO else [name for name in every if name in required]
        return {name: self.value(every[name], depth + 1) for name in wanted}


def _fixed(schema: dict[str, Any]) -> Any:
    values = [schema["const"]] if "const" in schema else _several(schema["enum"], "enum")
    types = _types(schema) or list(_KEYWORDS)
    for value in values:
        if any(_is_of(value, name) for name in types):
            return value
    raise ValueError(f"none of the values {values!r} is of type {', '.join(types)}")


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, int | float) if name == "number" else isinstance(value, _PYTHON_TYPES[name])


def _types(schema: dict[str, Any]) -> list[str]:
    if "type" not in schema:
        return []
    said = schema["type"]
    names = [said] if isinstance(said, str) else _several(_names(said, "type"), "type")
    for name in names:
        if name not in _KEYWORDS:
            raise ValueError(f"type: there is no {name!r}")
    return names


def _limits(schema: dict[str, Any], least: str, most: str, default: int) -> tuple[int, int]:
    low, high = schema.get(least, default), schema.get(most, _MOST)
    for keyword, limit in ((least, low), (most, high)):
        if not (isinstance(limit, int) and 0 <= limit <= _MOST):
            raise ValueError(f"{keyword} is a number from 0 to {_MOST}")
    if least in schema and high < low:
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
