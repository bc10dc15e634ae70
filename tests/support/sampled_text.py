"""Text as the simulated model makes it, without an engine."""

from __future__ import annotations

from collections.abc import Iterator

from enginehouse_sim.simulator.model.text import TextSampler, bytes_of


def generate(seed: int, text: str, choice: int = 0) -> Iterator[str]:
    """The tokens that follow ``text``, without end."""
    place = TextSampler(seed, text, choice)
    while True:
        yield bytes_of(place.next()).decode()
