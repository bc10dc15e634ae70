"""Compiles regular expressions to expressions of a grammar.

``interegular`` makes a finite automaton from Python's syntax, without backward references and lookbehind. The automaton
matches the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from enginehouse_sim.simulator.grammar.expressions import EMPTY, Chain, CharacterSet, Choice, Expression, Reference
from enginehouse_sim.simulator.model.text import LETTERS, WORD_LENGTH, pieces

if TYPE_CHECKING:
    from interegular.fsm import FSM, State

_MOST_STATES = 2000
_LONG_COUNT = re.compile(r"\{\d*,?\d{4,}\}|\{\d{4,},?\d*\}")
_SUGGESTIONS = 4
"""Tokens to suggest for each step of the automaton."""


def compile_regex(text: str) -> Expression:
    """The texts that match ``text``. Raises ``ValueError`` for a pattern that cannot be used."""
    try:
        import interegular
    except ImportError:
        raise ValueError("regex needs a package: pip install 'enginehouse[regex]'") from None
    if count := _LONG_COUNT.search(text):
        raise ValueError(f"regex {text!r} counts too far: {count[0]}; 999 is the most")
    try:
        automaton = interegular.parse_pattern(text).to_fsm()
    except (interegular.InvalidSyntax, interegular.Unsupported) as error:
        raise ValueError(f"regex {text!r} is not understood: {error}") from None
    if len(automaton.states) > _MOST_STATES:
        raise ValueError(f"regex {text!r} has {len(automaton.states)} states, and {_MOST_STATES} are the most")
    live = _live(automaton)
    if automaton.initial not in live:
        raise ValueError(f"regex {text!r} matches no text")
    return _StateReferences(automaton, live).start


class _StateReferences:
    """One reference for each state of an automaton: the rest of the text from there on."""

    def __init__(self, automaton: FSM, live: set[State]) -> None:
        self._sets = {key: _CharacterSets.of(symbols) for key, symbols in automaton.alphabet.by_transition.items()}
        named = "".join(one.named for one in self._sets.values())
        self._sets = {key: one.without(named) for key, one in self._sets.items()}
        self._steps = {
            state: [(self._sets[key], after) for key, after in automaton.map[state].items() if after in live]
            for state in live
        }
        self._finals = automaton.finals
        references = {state: Reference() for state in sorted(live)}
        for state, reference in references.items():
            parts: list[Expression] = [EMPTY] if state in self._finals else []
            for characters, after in self._steps[state]:
                parts += [Chain(letter, references[after]) for letter in self._letters(characters, after)]
            reference.target = Choice(*parts)
        self.start = references[automaton.initial]

    def _letters(self, characters: _CharacterSets, after: State) -> Iterator[CharacterSet]:
        """The set in two parts, word characters and others, because no token has both."""
        for some, inverted in characters.parts():
            begins = some if not inverted else "".join(one for one in "-.:/!?" if one not in some)
            yield CharacterSet(some, self._suggestions(begins, after), inverted=inverted)

    def _suggestions(self, begins: str, after: State) -> Sequence[str]:
        """Tokens that begin with one of these characters."""
        dice = Random(begins)
        some = dice.sample(begins, min(len(begins), _SUGGESTIONS))
        return sorted({pieces(first + self._walk(after, dice))[0] for first in some})

    def _walk(self, state: State, dice: Random) -> str:
        """The beginning of a text from ``state`` on, long enough for a token."""
        text = ""
        while len(text) <= WORD_LENGTH and self._steps[state] and not (state in self._finals and dice.random() < 0.2):
            characters, state = dice.choice(self._steps[state])
            text += dice.choice(characters.samples)
        return text


def _live(automaton: FSM) -> set[State]:
    """The states from which a text can end."""
    before: dict[State, set[State]] = {}
    for state, steps in automaton.map.items():
        for after in steps.values():
            before.setdefault(after, set()).add(state)
    live, waiting = set(automaton.finals), list(automaton.finals)
    while waiting:
        reaching = before.get(waiting.pop(), set()) - live
        live |= reaching
        waiting += reaching
    return live


class _CharacterSets(NamedTuple):
    """A set of characters: ``named``, and with ``others`` all that no set of the automaton names."""

    named: str
    others: bool
    all_named: str = ""

    @classmethod
    def of(cls, symbols: Iterable[object]) -> _CharacterSets:
        named = "".join(sorted(symbol for symbol in symbols if isinstance(symbol, str)))
        return cls(named, not all(isinstance(symbol, str) for symbol in symbols))

    def without(self, all_named: str) -> _CharacterSets:
        return self._replace(all_named=all_named)

    @property
    def samples(self) -> str:
        """Some characters of the set."""
        return self.named or "".join(one for one in LETTERS if one not in self.all_named) or "~"

    def parts(self) -> Iterator[tuple[str, bool]]:
        """Disjoint sets that make up this one, the last of them inverted if there are ``others``."""
        words = "".join(one for one in self.named if one in LETTERS)
        plain = "".join(one for one in self.named if one not in LETTERS)
        if self.others:
            words += "".join(one for one in LETTERS if one not in self.all_named)
        if words:
            yield words, False
        if plain and not self.others:
            yield plain, False
        if self.others:
            yield "".join(one for one in {*LETTERS, *self.all_named} if one not in plain), True
