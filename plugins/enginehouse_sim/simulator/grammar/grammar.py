"""Compiled grammars, and the position of one answer in its grammar."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from enginehouse_sim.simulator.grammar import json_text
from enginehouse_sim.simulator.grammar.automaton import Automaton, State, is_complete
from enginehouse_sim.simulator.grammar.expressions import Choice, Expression, literal
from enginehouse_sim.simulator.grammar.json_schema import compile_schema
from enginehouse_sim.simulator.grammar.regular import compile_regex
from enginehouse_sim.simulator.grammar.rows import Row, Rows
from enginehouse_sim.simulator.model.text import EOS, bytes_of

JSON_OBJECT = "json_object"
"""The grammar of any JSON object: OpenAI's JSON mode."""

JSON_VALUE = "json"
"""The grammar of any JSON value."""

_REGEX = "regex:"
_CHOICE = "choice:"


class Grammar:
    """The grammar named by ``text``: ``JSON_OBJECT``, ``JSON_VALUE``, a JSON schema, a regex or a choice.

    Raises ``ValueError`` if it cannot be compiled.
    """

    def __init__(self, text: str) -> None:
        try:
            self.automaton = Automaton(_expression(text))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        self.rows = Rows(self.automaton)


@lru_cache(maxsize=256)
def grammar_of(text: str) -> Grammar:
    """The grammar named by ``text``, compiled once. Raises ``ValueError`` if it cannot be compiled."""
    try:
        return Grammar(text)
    except ValueError as error:
        raise ValueError(f"The grammar cannot be compiled: {error}") from None


def regex_grammar(pattern: str) -> str:
    """The name of the grammar of texts that match ``pattern``."""
    return _REGEX + pattern


def choice_grammar(texts: Sequence[str]) -> str:
    """The name of the grammar of these ``texts``."""
    return _CHOICE + msgspec.json.encode(texts).decode()


def _expression(text: str) -> Expression:
    if text.startswith(_REGEX):
        return compile_regex(text.removeprefix(_REGEX))
    if text.startswith(_CHOICE):
        return _choice(msgspec.json.decode(text.removeprefix(_CHOICE), type=list[str]))
    return json_text.document(_json(text))


def _choice(texts: Sequence[str]) -> Expression:
    if not texts:
        raise ValueError("choice is a list with something in it")
    return Choice(*map(literal, texts))


def _json(text: str) -> Expression:
    if text == JSON_OBJECT:
        return json_text.OBJECT
    if text == JSON_VALUE:
        return json_text.VALUE
    try:
        schema: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not a JSON schema: {error}") from None
    return compile_schema(schema)


class Matcher:
    """The position of an answer in its grammar."""

    __slots__ = ("_ended", "_grammar", "_last", "_state")

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._state: State = grammar.automaton.start
        self._last = ""
        self._ended = False

    def copy(self) -> Matcher:
        twin = Matcher(self._grammar)
        twin._state, twin._last, twin._ended = self._state, self._last, self._ended
        return twin

    def accept(self, tokens: Sequence[int]) -> int:
        """Advance by ``tokens`` as far as they are allowed; return how many were."""
        for at, token in enumerate(tokens):
            if not self._accept(token):
                return at
        return len(tokens)

    def _accept(self, token: int) -> bool:
        if self._ended:
            return token == EOS
        if token == EOS:
            self._ended = is_complete(self._state)
            return self._ended
        text = bytes_of(token).decode(errors="replace")
        state = self._grammar.automaton.advance(self._state, text)
        if state:
            self._state, self._last = state, text
        return bool(state)

    def row(self, remaining: int, may_end: bool = True) -> Row:
        """The tokens to choose from if ``remaining`` more can be generated; ``EOS`` alone after the end.

        With ``may_end`` false, the answer does not end while it can continue.
        """
        if self._ended:
            return frozenset({EOS})
        row = self._grammar.rows.row(self._state, self._last, remaining)
        return row if may_end or EOS not in row else row - {EOS} or row
