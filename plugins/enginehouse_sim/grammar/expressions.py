"""Expressions: what a text may look like. They can contain each other, so they describe nesting of any depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from enginehouse_sim.model.text import count_tokens, pieces


class Expression:
    """A kind of text. Expressions are the same only if they are the same object."""


class Letter(Expression):
    """One character out of ``characters``, or with ``inverted`` any one that is not among them.

    ``offers``: tokens that a generator may choose here; they begin with such a character and may go on behind it.
    """

    def __init__(self, characters: str, offers: Sequence[str] = (), *, inverted: bool = False) -> None:
        self.offers = tuple(offers)
        self._characters = frozenset(characters)
        self._inverted = inverted
        self.sample = next(one for one in map(chr, count(ord("a"))) if self.takes(one)) if inverted else min(characters)
        self.goes_on_words = not inverted and all(count_tokens("a" + one) == 1 for one in self._characters)
        """Whether each of them would be one token with letters before it."""

    def takes(self, character: str) -> bool:
        """Whether it is one of them."""
        return (character in self._characters) is not self._inverted


class Chain(Expression):
    """Its parts, one after the other; without parts, the empty text."""

    def __init__(self, *parts: Expression) -> None:
        self.parts = parts


class Choice(Expression):
    """One of its parts."""

    def __init__(self, *parts: Expression) -> None:
        self.parts = parts


class Reference(Expression):
    """Another expression, which is set later; so an expression can contain itself."""

    def __init__(self) -> None:
        self.target: Expression = EMPTY


EMPTY = Chain()


def optional(part: Expression) -> Expression:
    """``part`` or nothing."""
    return Choice(EMPTY, part)


def repeat(part: Expression) -> Expression:
    """``part`` any number of times, also none. It must not be empty."""
    again = Reference()
    again.target = optional(Chain(part, again))
    return again


def literal(text: str) -> Expression:
    """This text only, offered token by token."""
    return Chain(
        *(Letter(one, () if at else (piece,)) for piece in pieces(text) for at, one in enumerate(piece)),
    )
