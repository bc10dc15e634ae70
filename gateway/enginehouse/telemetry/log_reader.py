"""Several logs, read and followed as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

from enginehouse.telemetry.log_ring import Line, LogRing
from enginehouse.telemetry.timed import set_or_late

Rings = Mapping[str, LogRing]
"""Logs by the name that is put before each of their lines; nothing is put there for the name ``""``."""

_LOOK_S = 1.0
"""How often a follower looks which logs there are while nothing is written to those that it knows."""


def history(rings: Rings, most: int | None = None) -> Sequence[str]:
    """The last ``most`` lines of all logs together, or all there are, in the order in which they came."""
    lines = _merged(_labelled(name, ring.read(ring.oldest)) for name, ring in rings.items())
    return lines if most is None else lines[max(len(lines) - most, 0) :]


async def follow(rings: Callable[[], Rings], most: int | None = None) -> AsyncGenerator[Sequence[str], None]:
    """The history, then lines as they are written, for ever; what came together is one piece.

    ``rings`` is asked again and again, for logs may come and go; what it raises ends the pieces. Who takes them too
    slowly loses lines, and finds a line that says how many.
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
                await set_or_late(more, _LOOK_S)
    finally:
        for ring in places:
            ring.leave(more)


def _places(known: Rings, before: Mapping[LogRing, int], more: asyncio.Event) -> dict[LogRing, int]:
    """Where to read on; a log that is new is read from its beginning."""
    places = {ring: before.get(ring, ring.oldest) for ring in known.values()}
    for ring in before.keys() - places.keys():
        ring.leave(more)
    for ring in places:
        ring.attend(more)
    return places


def _labelled(name: str, lines: Iterable[Line]) -> Iterable[Line]:
    return (Line(line.arrival, f"[{name}] {line.text}") for line in lines) if name else lines


def _merged(logs: Iterable[Iterable[Line]]) -> list[str]:
    lines = [line for log in logs for line in log]
    lines.sort(key=lambda line: line.arrival)
    return [line.text for line in lines]
