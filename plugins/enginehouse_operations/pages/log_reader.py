"""Several logs, read and followed as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

from enginehouse.pages import LogLine, LogRing
from enginehouse.runtime import wait_within

Rings = Mapping[str, LogRing]
"""Logs by name. Each line begins with the name in brackets, unless the name is empty."""

_LOOK_S = 1.0
"""How often a follower looks for new logs while nothing is written to those it knows, in seconds."""


def history(rings: Rings, most: int | None = None) -> Sequence[str]:
    """The last ``most`` lines of all logs together, or all lines, in the order of their arrival."""
    lines = _merged(_labelled(name, ring.read(ring.oldest)) for name, ring in rings.items())
    return lines if most is None else lines[max(len(lines) - most, 0) :]


async def follow(rings: Callable[[], Rings], most: int | None = None) -> AsyncGenerator[Sequence[str], None]:
    """Yield the history, then new lines as they are written, without end. Lines that arrive together are one piece.

    ``rings`` is called again for each piece, because logs may be added and removed; an exception of it ends the pieces.
    A reader that is too slow loses lines and reads their number.
    """
    more = asyncio.Event()
    places = {ring: ring.written for ring in rings().values()}
    if lines := history(rings(), most):
        yield lines
    try:
        while True:
            more.clear()
            known = rings()
            places = _places(known, places, more)
            lines = _merged(_labelled(name, ring.read(places[ring])) for name, ring in known.items())
            places = {ring: ring.written for ring in places}
            if lines:
                yield lines
            else:
                await wait_within(_LOOK_S, more)
    finally:
        for ring in places:
            ring.unfollow(more)


def _places(known: Rings, before: Mapping[LogRing, int], more: asyncio.Event) -> dict[LogRing, int]:
    """The next line to read in each log. A new log is read from its beginning."""
    places = {ring: before.get(ring, ring.oldest) for ring in known.values()}
    for ring in before.keys() - places.keys():
        ring.unfollow(more)
    for ring in places:
        ring.follow(more)
    return places


def _labelled(name: str, lines: Iterable[LogLine]) -> Iterable[LogLine]:
    return (LogLine(line.arrival, f"[{name}] {line.text}") for line in lines) if name else lines


def _merged(logs: Iterable[Iterable[LogLine]]) -> list[str]:
    lines = [line for log in logs for line in log]
    lines.sort(key=lambda line: line.arrival)
    return [line.text for line in lines]
