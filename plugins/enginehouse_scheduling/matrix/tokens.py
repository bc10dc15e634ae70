"""Splits an expression into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from enginehouse_scheduling.matrix.source import Source, Span

_BARE = re.compile(r"[\w.-]+")
_QUOTED = re.compile(r'"([^"\n]*)"')


class Token(NamedTuple):
    """``kind`` is the sign itself, ``"name"`` or ``"end"``. ``name`` has no quotes."""

    kind: str
    span: Span
    name: str = ""


def tokenize(source: Source) -> Iterator[Token]:
    """The tokens of an expression, with an ``"end"`` last. Raises ``ConfigError`` for an unknown character."""
    text = source.text.rstrip()
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        token = _token(source, text, place)
        yield token
        place = token.span.end
    yield Token("end", Span(place, place))


def _token(source: Source, text: str, place: int) -> Token:
    sign, here = text[place], Span(place, place + 1)
    if sign in "&|()+":
        return Token(sign, here)
    if bare := _BARE.match(text, place):
        return Token("name", Span(*bare.span()), bare[0])
    if quoted := _QUOTED.match(text, place):
        if not quoted[1]:
            raise source.error("empty name", Span(*quoted.span()))
        return Token("name", Span(*quoted.span()), quoted[1])
    if sign == '"':
        raise source.error("missing closing quote", here)
    remedy = 'put a name with other characters than letters, digits, "_", "-" and "." in double quotes'
    raise source.error(f"unexpected character '{sign}'", here, remedy)
