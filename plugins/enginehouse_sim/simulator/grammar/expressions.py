"""Expressions: sets of texts, which may contain themselves and so describe nesting of any depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from enginehouse_sim.simulator.model.text import count_tokens, pieces


class Expression:
    """A set of texts. Expressions are compared by identity."""


class CharacterSet(Expression):
    """One character out of ``characters``; with ``inverted``, any other one.

    ``suggestions``: tokens that a generator may choose here. Each begins with such a character, and may have more.
    """

    def __init__(self, characters: str, suggestions: Sequence[str] = (), *, inverted: bool = False) -> None:
        self.suggestions = tuple(suggestions)
        self._characters = frozenset(characters)
        self._inverted = inverted
        self.sample = (
            next(one for one in map(chr, count(ord("a"))) if self.matches(one)) if inverted else min(characters)
        )
        self.extends_words = not inverted and all(count_tokens("a" + one) == 1 for one in self._characters)
        """Whether each of the characters would merge with letters before it into one token."""

    def matches(self, character: str) -> bool:
        return (character in self._characters) is not self._inverted


class Chain(Expression):
    """The parts, one after the other; without parts, the empty text."""

    def __init__(self, *parts: Expression) -> None:
        self.parts = parts


class Choice(Expression):
    """One of the parts."""

    def __init__(self, *parts: Expression) -> None:
        self.parts = parts


class Reference(Expression):
    """An expression that is set later, so that an expression can contain itself."""

    def __init__(self) -> None:
        self.target: Expression = EMPTY


EMPTY = Chain()


def optional(part: Expression) -> Expression:
    """``part`` or nothing."""
    return Choice(EMPTY, part)


def repeat(part: Expression) -> Expression:
    """``part`` any number of times, or never. ``part`` must not match the empty text."""
    again = Reference()
    again.target = optional(Chain(part, again))
    return again


def times(part: Expression, least: int, most: int | None) -> Expression:
    """``part`` from ``least`` to ``most`` times, without ``most`` any number. It must not match the empty text."""
    if most is None:
        return Chain(*[part] * least, repeat(part))
    more: Expression = EMPTY
    for _ in range(most - least):
        more = optional(Chain(part, more))
    return Chain(*[part] * least, more)


def literal(text: str) -> Expression:
    """This text only, suggested token by token."""
    return Chain(
        *(CharacterSet(one, () if at else (piece,)) for piece in pieces(text) for at, one in enumerate(piece)),
    )
