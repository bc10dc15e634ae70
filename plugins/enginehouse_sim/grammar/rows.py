"""From what a machine allows to tokens: the row of those to choose from next."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from operator import itemgetter

from enginehouse_sim.grammar.machine import Machine, State, apart_from, complete, offers
from enginehouse_sim.model.text import EOS, count_tokens, encode, token_id

Row = frozenset[int]


class Rows:
    """The rows of one machine, each computed once.

    A row holds tokens with which the text is cut into the same tokens when it is read again. As the end of an answer
    comes near, it holds only those from which that can still be reached, and at last the one on the shortest way there.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._choices = lru_cache(maxsize=4096)(self._find_choices)
        self._row = lru_cache(maxsize=4096)(self._first_choices)

    def row(self, state: State, last: str, remaining: int) -> Row:
        """The tokens to choose from in ``state``, behind the token ``last``, if ``remaining`` more can be made."""
        state = apart_from(state, last) or state  # the latter behind tokens that were not chosen from a row
        return self._row(state, bisect_right(self._choices(state), remaining, key=itemgetter(0)))

    def _first_choices(self, state: State, count: int) -> Row:
        if count:
            return frozenset(token for _, token in self._choices(state)[:count])
        return frozenset(encode(self._machine.closing(state))[:1] or [EOS])

    def _find_choices(self, state: State) -> list[tuple[int, int]]:
        """Each token that can be chosen, with the number of tokens to the end of the answer, itself and ``EOS`` too."""
        found = [(1, EOS)] if complete(state) else []
        for offer in offers(state):
            behind = apart_from(self._machine.advance(state, offer), offer)
            if behind:
                found.append((2 + count_tokens(self._machine.closing(behind)), token_id(offer)))
        return sorted(found)
