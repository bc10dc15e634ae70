"""Structured output parameters, and the grammars that they ask for."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.grammar.grammar import JSON_OBJECT, choice_grammar, regex_grammar


class JsonSchema(msgspec.Struct):
    """``json_schema`` of a ``response_format``."""

    schema: Any = None


class ResponseFormatParam(msgspec.Struct):
    """``response_format`` of a request."""

    type: str
    json_schema: JsonSchema | None = None


class StructuredOutputs(msgspec.Struct):
    """``structured_outputs`` of a request. ``grammar`` and ``structural_tag`` are not supported."""

    json: Any = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: str | None = None


def grammar_of_format(asked: ResponseFormatParam | None) -> str | None:
    """The grammar of a ``response_format``. Raises ``InvalidRequest`` for an unsupported one."""
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object":
        return JSON_OBJECT
    if asked.type == "json_schema" and asked.json_schema is not None and asked.json_schema.schema is not None:
        return schema_text(asked.json_schema.schema)
    raise InvalidRequest(
        "A 'response_format' is text, json_object, or json_schema with a schema here", param="response_format"
    )


def grammar_of_outputs(asked: StructuredOutputs | None) -> str | None:
    """The grammar of ``structured_outputs``. Raises ``InvalidRequest`` for an unsupported one."""
    if asked is None:
        return None
    if asked.json is not None:
        return schema_text(asked.json)
    if asked.json_object:
        return JSON_OBJECT
    if asked.regex is not None:
        return regex_grammar(asked.regex)
    if asked.choice is not None:
        return choice_grammar(asked.choice)
    raise InvalidRequest("Of 'structured_outputs' only json, json_object, regex and choice are understood here")


def schema_text(schema: Any) -> str:
    """A schema as text, whether it was sent as text or as JSON."""
    return schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
