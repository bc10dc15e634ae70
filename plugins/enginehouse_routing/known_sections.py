"""The texts of earlier prompts, by which a new prompt is told how it differs from them."""

from __future__ import annotations

from typing import Final, NamedTuple

from enginehouse_kit.prefixes import Prompt

_MOST_RECENT: Final = 32_768
_CHARACTERS_PER_TOKEN: Final = 4


class Difference(NamedTuple):
    """Where a prompt begins to differ from all before it: in the section ``name``. ``is_first``: in its first one.

    ``tokens``: of the known texts that come later, and could have been cached.
    """

    name: str
    is_first: bool
    tokens: int


class KnownSections:
    """Remembers the sections of the last prompts: each with all before it, and each for itself.

    ``_recent`` become ``_older`` when they are many, in place of those that were: to order them by age takes longer
    than all else that is done with them.
    """

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._older: set[int] = set()

    def note(self, prompt: Prompt) -> None:
        """Remember the sections of ``prompt``."""
        for section in prompt.sections:
            self._recent.add(section.chain)
            self._recent.add(section.mark)
            if len(self._recent) >= _MOST_RECENT:
                self._recent, self._older = set(), self._recent

    def difference(self, prompt: Prompt, same: int) -> Difference | None:
        """Where ``prompt`` differs; ``None`` if it has no sections. ``same``: the tokens that are cached."""
        recent, older, place, found, tokens = self._recent, self._older, 0, -1, 0
        sections = prompt.sections
        for number, section in enumerate(sections):
            if found < 0 and not (section.chain in recent or section.chain in older):
                found = number
            elif found >= 0 and (section.mark in recent or section.mark in older):
                tokens += section.length // _CHARACTERS_PER_TOKEN
        if found < 0:  # the ends of all texts are known: the chunks tell where the difference is
            for found, section in enumerate(sections):  # noqa: B007
                place += section.length
                if place > same * _CHARACTERS_PER_TOKEN:
                    break
        return Difference(sections[found].name, found == 0, tokens) if sections else None
