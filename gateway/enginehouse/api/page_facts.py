"""What pages of plugins know of their gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from enginehouse.domain.ticket import Phase
from enginehouse.interfaces.observers import Observer
from enginehouse.telemetry.activity import EndedRequest
from enginehouse.telemetry.log_ring import LogRing
from enginehouse.telemetry.series.reading import SeriesReader


class PageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a page of a plugin knows of its gateway: ``request.app.state.facts``. Each call tells the current state."""

    epoch: Callable[[], float]
    """The time of day in seconds."""
    series: SeriesReader
    """The gateway's figures over time."""
    ended: Callable[[], Iterator[EndedRequest]]
    """The last 1000 requests that have ended, newest first."""
    ended_count: Callable[[], int]
    """How many have ended since the gateway started."""
    session_headers: Callable[[], Sequence[str]]
    """The headers that name the session of a request, as ``routing.session`` has them."""
    logs: Callable[[], Mapping[str, LogRing]]
    """The logs of launched engines, by backend, and the gateway's own one under an empty name."""
    snapshot: Callable[[], Mapping[str, Any]]
    """Replicas, backends and live requests, for JSON."""
    progress: Callable[[], dict[str, tuple[Phase, int | None]]]
    """The phase of each live request, by its id, and its position in the queue if it waits there."""
    observe: Callable[[Observer], None]
    """Lets an observer hear of the requests of all processes, until ``ignore``. What nobody observes costs nothing."""
    ignore: Callable[[Observer], None]
    closing: asyncio.Event
    """Set when the gateway begins to stop: streams without an end must then end."""
