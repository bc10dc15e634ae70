"""A pushdown automaton that reads a text character by character, and knows how the text may continue.

A state is a set of stacks, one for each way to parse the text so far. A stack holds the expressions still expected, the
next one last; the empty stack is a text that may end here.
"""

from __future__ import annotations

from functools import lru_cache

from enginehouse_sim.simulator.grammar.expressions import (
    Chain,
    CharacterSet,
    Choice,
    Expression,
    Reference,
)
from enginehouse_sim.simulator.model.text import count_tokens

Stack = tuple[Expression, ...]
State = frozenset[Stack]


class Automaton:
    """Accepts the texts of ``root``. Raises ``ValueError`` if all of them are infinite."""

    def __init__(self, root: Expression) -> None:
        self._shortest = _shortest_texts(root)
        if root not in self._shortest:
            raise ValueError("it describes a value that contains itself without end")
        self._settle = lru_cache(maxsize=1 << 14)(_settle)
        self.start: State = self._settle((root,))

    def advance(self, state: State, text: str) -> State:
        """The state after ``text``; empty if it is not allowed."""
        for character in text:
            left = [stack for stack in state if stack and _letter(stack).matches(character)]
            state = frozenset().union(*(self._settle(stack[:-1]) for stack in left))
        return state

    def shortest_ending(self, state: State) -> str:
        """A shortest text that leads to an end."""
        texts = ("".join(self._shortest[part] for part in reversed(stack)) for stack in state)
        return min(texts, key=_length)


def is_complete(state: State) -> bool:
    """Whether the text may end here."""
    return () in state


def suggestions(state: State) -> set[str]:
    """The tokens that a generator may try next."""
    return {suggestion for stack in state if stack for suggestion in _letter(stack).suggestions}


def without_merge(state: State, piece: str) -> State:
    """The part of ``state`` whose next character does not merge with ``piece`` into one token.

    Generated text must have the same tokens when it is tokenized again.
    """
    if count_tokens(piece + "a") > 1:
        return state
    return frozenset(stack for stack in state if not stack or not _letter(stack).extends_words)


def _letter(stack: Stack) -> CharacterSet:
    top = stack[-1]
    assert isinstance(top, CharacterSet)
    return top


def _settle(stack: Stack) -> State:
    """All continuations of ``stack`` with a character set on top."""
    settled = set()
    seen = {stack}
    waiting = [stack]
    while waiting:
        one = waiting.pop()
        if not one or isinstance(one[-1], CharacterSet):
            settled.add(one)
            continue
        for expanded in _expanded(one[-1], one[:-1]):
            if expanded not in seen:
                seen.add(expanded)
                waiting.append(expanded)
    return frozenset(settled)


def _expanded(top: Expression, rest: Stack) -> list[Stack]:
    if isinstance(top, Chain):
        return [(*rest, *reversed(top.parts))]
    return [(*rest, part) for part in _parts(top)]


def _parts(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, (Chain, Choice)):
        return expression.parts
    return (expression.target,) if isinstance(expression, Reference) else ()


def _shortest_texts(root: Expression) -> dict[Expression, str]:
    """For each expression in ``root``, one of its texts with the fewest tokens, if it has a finite one."""
    everything = _reachable(root)
    shortest: dict[Expression, str] = {}
    changed = True
    while changed:
        changed = False
        for expression in everything:
            text = _shortest_text(expression, shortest)
            if text is not None and (expression not in shortest or _length(text) < _length(shortest[expression])):
                shortest[expression] = text
                changed = True
    return shortest


def _shortest_text(expression: Expression, known: dict[Expression, str]) -> str | None:
    if isinstance(expression, CharacterSet):
        return expression.sample
    parts = [known.get(part) for part in _parts(expression)]
    texts = [text for text in parts if text is not None]
    if isinstance(expression, Chain):
        return "".join(texts) if len(texts) == len(parts) else None
    return min(texts, key=_length, default=None)


def _reachable(root: Expression) -> list[Expression]:
    """All expressions in ``root``, inner ones first as far as possible."""
    found: dict[Expression, None] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = None
            waiting.extend(_parts(one))
    return list(reversed(found))


def _length(text: str) -> tuple[int, int, str]:
    return count_tokens(text), len(text), text
