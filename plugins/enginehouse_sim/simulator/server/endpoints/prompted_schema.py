"""JSON schemas that clients write into their prompts, because not every engine takes them as a parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import Final

import msgspec

from enginehouse_sim.simulator.grammar.grammar import grammar_of
from enginehouse_sim.simulator.server.generation.prompts import ChatMessage

_ANNOUNCED: Final = re.compile(r"json[ _]schema[^{]{0,200}(?=\{)", re.IGNORECASE)
_read = JSONDecoder().raw_decode


def prompted_schema(messages: Sequence[ChatMessage]) -> str | None:
    """The first schema that a message announces as such, as text; ``None`` if none does, or its kind is unsupported."""
    for text in _texts(messages):
        for announced in _ANNOUNCED.finditer(text):
            try:
                schema, _ = _read(text, announced.end())
            except JSONDecodeError:
                continue
            if "properties" in schema and (usable := _usable(schema)) is not None:
                return usable
    return None


def _texts(messages: Sequence[ChatMessage]) -> Iterator[str]:
    for message in messages:
        if isinstance(message.content, str):
            yield message.content
        else:
            yield from (part.text for part in message.content or () if part.text is not None)


def _usable(schema: dict[str, object]) -> str | None:
    text = msgspec.json.encode(schema).decode()
    try:
        grammar_of(text)
    except ValueError:
        return None
    return text
