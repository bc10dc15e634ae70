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
from itertools import cycle, islice
from typing import Annotated, Any, Literal

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
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
}
"""The keywords of each type that has some, which stand for the type where it is not said."""
_SIMPLE: Mapping[str, Any] = {"integer": 42, "number": 2.5, "boolean": True, "null": None}
_TYPES: Mapping[str, Any] = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
_Type = Literal["object", "array", "string", "integer", "number", "boolean", "null"]
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Several = Annotated[list[Any], msgspec.Meta(min_length=1)]


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
    if grammar == JSON_OBJECT:
        return json.dumps({WORDS[0]: " ".join(WORDS[1:4])})
    try:
        if grammar.startswith(_CHOICE):
            return str(msgspec.json.decode(grammar.removeprefix(_CHOICE), type=_Several)[0])
        schema = msgspec.json.decode(grammar)
        return json.dumps(_Schema(schema).value(schema))
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not understood: {error}") from None


class _Keywords(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A schema, without what only annotates it."""

    ref: str = msgspec.field(name="$ref", default="")
    any_of: _Several | None = None
    const: Any = None
    enum: _Several | None = None
    type: _Type | Annotated[list[_Type], msgspec.Meta(min_length=1)] | None = None
    properties: dict[str, Any] = msgspec.field(default_factory=dict)
    required: list[str] = msgspec.field(default_factory=list)
    additional_properties: Any = True
    items: Any = True
    min_items: _Count | None = None
    max_items: _Count = _MOST
    min_length: _Count | None = None
    max_length: _Count = _MOST


class _Schema:
    """Makes a value for each part of a JSON schema. The error names what cannot be understood."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def value(self, schema: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply, or describes a value that contains itself without end")
        if schema is True:
            return WORDS[0]
        said = {name: value for name, value in schema.items() if name not in _NOTES} if type(schema) is dict else schema
        try:
            found = msgspec.convert(said, _Keywords)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None
        alone = next((name for name in ("$ref", "anyOf", "const", "enum") if name in said), "")
        beside = said.keys() - {alone, *(("type",) if alone in ("const", "enum") else ())} if alone else ()
        if beside:
            raise ValueError(f"{', '.join(sorted(beside))}: not understood beside {alone}; leave it out of the schema")
        if alone == "$ref":
            return self.value(self._at(found.ref), depth + 1)
        if found.any_of is not None:
            return self._first(found.any_of, depth)
        types = [found.type] if isinstance(found.type, str) else found.type or []
        if alone:
            return _fixed([found.const] if alone == "const" else found.enum or [], types)
        kind = types[0] if types else next((name for name, keys in _KEYWORDS.items() if keys & said.keys()), "")
        return self._typed(kind, found, depth)

    def _first(self, schemas: Sequence[Any], depth: int) -> Any:
        """A value of the first one that has an end here."""
        first, *others = schemas
        try:
            return self.value(first, depth + 1)
        except ValueError:
            if not others:
                raise
        return self._first(others, depth)

    def _at(self, path: str) -> Any:
        schema = self._root
        for step in path.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not path.startswith("#") or not isinstance(schema, dict) or name not in schema:
                raise ValueError(f"$ref: there is no {path}")
            schema = schema[name]
        return schema

    def _typed(self, kind: str, found: _Keywords, depth: int) -> Any:
        if kind == "object":
            return self._object(found, depth)
        if kind == "array":
            least = (1 if depth < _OPTIONAL_UP_TO else 0) if found.min_items is None else found.min_items
            _check("minItems", found.min_items, "maxItems", found.max_items)
            return [self.value(found.items, depth + 1) for _ in range(min(least, found.max_items))]
        if kind == "string":
            _check("minLength", found.min_length, "maxLength", found.max_length)
            return "".join(islice(cycle(f"{' '.join(WORDS)} "), min(max(found.min_length or 0, 5), found.max_length)))
        return _SIMPLE.get(kind, WORDS[0])

    def _object(self, found: _Keywords, depth: int) -> dict[str, Any]:
        missing = [name for name in found.required if name not in found.properties]
        if found.additional_properties is False and missing:
            raise ValueError(f"required: {', '.join(missing)} is not allowed by additionalProperties")
        every = {**found.properties, **dict.fromkeys(missing, found.additional_properties)}
        wanted = every if depth < _OPTIONAL_UP_TO else [name for name in every if name in found.required]
        return {name: self.value(every[name], depth + 1) for name in wanted}


def _check(least: str, low: int | None, most: str, high: int) -> None:
    if low is not None and high < low:
        raise ValueError(f"{least} is {low}, more than {most}, which is {high}")


def _fixed(values: Sequence[Any], types: Sequence[str]) -> Any:
    """The first of the values that is of one of the types, if any are said."""
    for value in values:
        own = "boolean" if isinstance(value, bool) else "null" if value is None else ""
        if not types or own in types or (not own and any(isinstance(value, _TYPES.get(name, ())) for name in types)):
            return value
    raise ValueError(f"none of the values {values!r} is of type {', '.join(types)}")
