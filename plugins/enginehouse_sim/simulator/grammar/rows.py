"""The rows of tokens to choose from next, computed from the automaton's characters."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from operator import itemgetter

from enginehouse_sim.simulator.grammar.automaton import Automaton, State, is_complete, suggestions, without_merge
from enginehouse_sim.simulator.model.text import EOS, count_tokens, encode, token_id

Row = frozenset[int]

_MARKS = ".-/"
"""Characters to begin an ending with, where a letter would merge with the word before."""


class Rows:
    """The rows of one automaton, each computed once.

    A row holds only tokens that stay the same when the text is tokenized again. Near the end of an answer, it holds
    only those from which the end can still be reached, and finally the one on the shortest way.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._choices = lru_cache(maxsize=4096)(self._find_choices)
        self._row = lru_cache(maxsize=4096)(self._first_choices)
        self._way_out = lru_cache(maxsize=4096)(self._first_of_ending)

    def row(self, state: State, last: str, remaining: int) -> Row:
        """The tokens to choose from in ``state``, after the token ``last``, with ``remaining`` more to generate."""
        state = without_merge(state, last) or state  # the latter after tokens from elsewhere
        count = bisect_right(self._choices(state), remaining, key=itemgetter(0))
        return self._row(state, count) if count else self._way_out(state, last)

    def _first_choices(self, state: State, count: int) -> Row:
        return frozenset(token for _, token in self._choices(state)[:count])

    def _first_of_ending(self, state: State, last: str) -> Row:
        return frozenset(encode(self._ending(state, last))[:1] or [EOS])

    def _ending(self, state: State, last: str) -> str:
        """A short ending that does not merge with the token ``last``, if there is one."""
        ending = self._automaton.shortest_ending(state)
        if not last or not ending or count_tokens(last + ending[0]) > 1:
            return ending
        for mark in _MARKS:
            if after := self._automaton.advance(state, mark):
                return mark + self._automaton.shortest_ending(after)
        return ending

    def _find_choices(self, state: State) -> list[tuple[int, int]]:
        """Each possible token, with the number of tokens to the end of the answer, itself and ``EOS`` included."""
        found = [(1, EOS)] if is_complete(state) else []
        for suggestion in suggestions(state):
            after = without_merge(self._automaton.advance(state, suggestion), suggestion)
            if after:
                found.append((2 + count_tokens(self._ending(after, suggestion)), token_id(suggestion)))
        return sorted(found)
