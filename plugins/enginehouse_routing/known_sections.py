"""The texts of earlier prompts, by which a new prompt is told how it differs from them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from enginehouse import Prompt

_MOST_KEPT: Final = 65_536
_CHARACTERS_PER_TOKEN: Final = 4


class Difference(NamedTuple):
    """Where a prompt begins to differ from all before it: in the section ``name``. ``is_first``: in its first one.

    ``tokens``: of the known texts that come later, and could have been cached.
    """

    name: str
    is_first: bool
    tokens: int


class KnownSections:
    """Remembers the sections of the last prompts: each with all before it, and each for itself."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, None] = OrderedDict()

    def note(self, prompt: Prompt) -> None:
        """Remember the sections of ``prompt``."""
        known = self._known
        for section in prompt.sections:
            for mark in (section.chain, section.mark):
                if mark in known:
                    known.move_to_end(mark)
                else:
                    known[mark] = None
        while len(known) > _MOST_KEPT:
            known.popitem(last=False)

    def difference(self, prompt: Prompt, same: int) -> Difference | None:
        """Where ``prompt`` differs; ``None`` if it has no sections. ``same``: the tokens that are cached."""
        known, place, found, tokens = self._known, 0, -1, 0
        sections = prompt.sections
        for number, section in enumerate(sections):
            if found < 0 and section.chain not in known:
                found = number
            elif found >= 0 and section.mark in known:
                tokens += section.length // _CHARACTERS_PER_TOKEN
        if found < 0:  # the ends of all texts are known: the chunks tell where the difference is
            for found, section in enumerate(sections):  # noqa: B007
                place += section.length
                if place > same * _CHARACTERS_PER_TOKEN:
                    break
        return Difference(sections[found].name, found == 0, tokens) if sections else None
