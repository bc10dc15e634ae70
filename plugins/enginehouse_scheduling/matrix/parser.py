"""Parses an expression into a tree.

::

    alternatives = together { "|" together }
    together     = part { "&" part }
    part         = name | "+" name | "(" alternatives ")"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Union

from enginehouse_scheduling.matrix.source import Source, Span
from enginehouse_scheduling.matrix.tokens import Token, tokenize


class Name(NamedTuple):
    """A model, or the short name of one."""

    text: str
    span: Span


class Reference(NamedTuple):
    """``+name``: another set, as if written here in parentheses."""

    text: str
    span: Span


class Together(NamedTuple):
    """``&``: one choice of every part, at the same time."""

    parts: list[Tree]


class Alternatives(NamedTuple):
    """``|``: one choice of one part."""

    parts: list[Tree]


Tree = Union[Name, Reference, Together, Alternatives]  # noqa: UP007 - the classes refer to it before it exists


def parse(source: Source) -> Tree:
    """The tree of an expression. Raises ``ConfigError`` with the place of the mistake."""
    return _Parser(source).whole()


class _Parser:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = list(tokenize(source))
        self._next = 0

    def whole(self) -> Tree:
        if self._token.kind == "end":
            raise self._source.error(
                "empty expression", self._token.span, "name a model, or a combination: (a | b) & c"
            )
        tree = self._alternatives()
        if self._token.kind == ")":
            raise self._source.error("unexpected ')'", self._token.span, "no '(' is open here")
        if self._token.kind != "end":
            raise self._source.error(f"unexpected {self._found}", self._token.span, "join parts with '&' or '|'")
        return tree

    def _alternatives(self) -> Tree:
        parts = self._joined("|", self._together)
        return parts[0] if len(parts) == 1 else Alternatives(parts)

    def _together(self) -> Tree:
        parts = self._joined("&", self._part)
        return parts[0] if len(parts) == 1 else Together(parts)

    def _joined(self, sign: str, part: Callable[[], Tree]) -> list[Tree]:
        parts = [part()]
        while self._token.kind == sign:
            self._take()
            parts.append(part())
        return parts

    def _part(self) -> Tree:
        token = self._token
        if token.kind not in ("name", "+", "("):
            raise self._source.error(
                f"unexpected {self._found}", token.span, "a model, '+' and a set, or '(' goes here"
            )
        self._take()
        if token.kind == "(":
            return self._parentheses(token)
        return Name(token.name, token.span) if token.kind == "name" else self._reference(token)

    def _reference(self, plus: Token) -> Tree:
        if self._token.kind != "name":
            raise self._source.error("expected a set's name after '+'", plus.span)
        named = self._take()
        return Reference(named.name, Span(plus.span.start, named.span.end))

    def _parentheses(self, opening: Token) -> Tree:
        tree = self._alternatives()
        if self._token.kind == "end":
            raise self._source.error("missing closing parenthesis", opening.span, "close this one")
        if self._token.kind != ")":
            raise self._source.error(f"unexpected {self._found}", self._token.span, "join parts with '&' or '|'")
        self._take()
        return tree

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    @property
    def _found(self) -> str:
        if self._token.kind == "end":
            return "end"
        return f"'{self._source.text[slice(*self._token.span)]}'"

    def _take(self) -> Token:
        token = self._token
        self._next += 1
        return token
