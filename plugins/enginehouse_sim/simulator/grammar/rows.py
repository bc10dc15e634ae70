"""From the automaton's characters to tokens: the row of tokens to choose from next."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from operator import itemgetter

from enginehouse_sim.simulator.grammar.automaton import Automaton, State, is_complete, suggestions, without_merge
from enginehouse_sim.simulator.model.text import EOS, count_tokens, encode, token_id

Row = frozenset[int]


class Rows:
    """The rows of one automaton, each computed once.

    A row holds only tokens that stay the same when the text is tokenized again. Near the end of an answer, it holds
    only those from which the end can still be reached, and finally the one on the shortest way.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._choices = lru_cache(maxsize=4096)(self._find_choices)
        self._row = lru_cache(maxsize=4096)(self._first_choices)

    def row(self, state: State, last: str, remaining: int) -> Row:
        """The tokens to choose from in ``state``, after the token ``last``, with ``remaining`` more to generate."""
        state = without_merge(state, last) or state  # the latter after tokens from elsewhere
        return self._row(state, bisect_right(self._choices(state), remaining, key=itemgetter(0)))

    def _first_choices(self, state: State, count: int) -> Row:
        if count:
            return frozenset(token for _, token in self._choices(state)[:count])
        return frozenset(encode(self._automaton.shortest_ending(state))[:1] or [EOS])

    def _find_choices(self, state: State) -> list[tuple[int, int]]:
        """Each possible token, with the number of tokens to the end of the answer, itself and ``EOS`` included."""
        found = [(1, EOS)] if is_complete(state) else []
        for suggestion in suggestions(state):
            after = without_merge(self._automaton.advance(state, suggestion), suggestion)
            if after:
                found.append((2 + count_tokens(self._automaton.shortest_ending(after)), token_id(suggestion)))
        return sorted(found)
