from __future__ import annotations

from enginehouse_kit.prefixes.prompt import Prompt, Section
from enginehouse_routing.known_sections import KnownSections


def prompt(*texts: str) -> Prompt:
    sections: list[Section] = []
    for place, text in enumerate(texts):
        sections.append(Section(f"message:{place}", text, sections[-1].chain if sections else 0))
    return Prompt("m", "".join(texts), sections=sections)


def test_what_comes_again_stays_known_while_all_else_is_forgotten() -> None:
    known, once, often = KnownSections(), prompt("once"), prompt("often", "and more")
    known.note(once)
    for number in range(40_000):
        known.note(prompt(str(number)))
        if not number % 10_000:
            known.note(often)
    asked = prompt("often", "something else")
    assert known.difference(asked, 0) == ("message:1", False, 0)
    assert known.difference(once, 0) == ("message:0", True, 0)
    assert len(known._recent | known._older) <= 65_536


def test_known_texts_behind_a_new_one_could_have_been_cached() -> None:
    known = KnownSections()
    known.note(prompt("first", "second" * 100, "third"))
    assert known.difference(prompt("another", "second" * 100), 0) == ("message:0", True, 150)
    assert known.difference(prompt("first", "second" * 100, "third"), 1) == ("message:0", True, 0)
    assert known.difference(prompt(), 0) is None
