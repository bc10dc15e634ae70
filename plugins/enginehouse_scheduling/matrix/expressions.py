"""Reads the expressions of a matrix: text, tokens, trees, and the sets that refer to each other.

::

    alternatives = together { "|" together }
    together     = part { "&" part }
    part         = name | "+" name | "(" alternatives ")"

Mistakes in syntax and references are errors that show the place. Names of models are not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Union

from enginehouse import ConfigError
from enginehouse.settings import did_you_mean

_BARE = re.compile(r"[\w.-]+")
_QUOTED = re.compile(r'"([^"\n]*)"')


class Span(NamedTuple):
    """A part of an expression: the offset of its first character and the offset behind its last."""

    start: int
    end: int


class Source(NamedTuple):
    """The text of an expression and its configuration key."""

    key: str
    text: str

    def error(self, problem: str, span: Span, remedy: str = "") -> ConfigError:
        """An error with line and column, both counted from 1, the line itself, and carets under the place."""
        before = self.text[: span.start]
        line = before.count("\n") + 1
        column = span.start - (before.rfind("\n") + 1) + 1
        shown = self.text.split("\n")[line - 1]
        indent = "".join(character if character == "\t" else " " for character in shown[: column - 1])
        carets = "^" * max(1, min(span.end, span.start + len(shown) - column + 1) - span.start)
        text = f"line {line}, column {column}: {problem}\n    {shown}\n    {indent}{carets}"
        return ConfigError(text, key=self.key, remedy=remedy)


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


class Set(NamedTuple):
    """One set: its expression, as text and as a tree."""

    source: Source
    tree: Tree


def read_sets(expressions: Mapping[str, str], key: str) -> dict[str, Set]:
    """The sets of the table at the configuration key ``key``, in their order.

    Raises ``ConfigError`` for bad syntax, a reference to an unknown set, and circular references.
    """
    sources = {name: Source(f"{key}.{name}", text) for name, text in expressions.items()}
    sets = {name: Set(source, parse(source)) for name, source in sources.items()}
    done: set[str] = set()
    for name in sets:
        _follow(sets, name, [name], done)
    return sets


def _follow(sets: Mapping[str, Set], name: str, path: list[str], done: set[str]) -> None:
    """Follow the references of a set. ``path``: the sets that led to it."""
    if name in done:
        return
    source, tree = sets[name]
    for reference in _references(tree):
        target = reference.text
        if target not in sets:
            remedy = did_you_mean(target, list(sets)) or "'+' is for sets; a model goes without it"
            raise source.error(f"undefined set '{target}'", reference.span, remedy)
        if target in path:
            circle = " -> ".join([*path[path.index(target) :], target])
            raise source.error(f"circular reference {circle}", reference.span, "write one of them without the other")
        _follow(sets, target, [*path, target], done)
    done.add(name)


def _references(tree: Tree) -> Iterator[Reference]:
    if isinstance(tree, Reference):
        yield tree
    elif not isinstance(tree, Name):
        for part in tree.parts:
            yield from _references(part)
