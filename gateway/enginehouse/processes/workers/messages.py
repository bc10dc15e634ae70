"""What the owner and a worker tell each other.

Each calls methods of the other's parts. Numbers of tickets, requests and pages are the worker's own. Both sides are of
the same version: the owner has forked its workers.
"""

from __future__ import annotations

import msgspec

from enginehouse.domain.request_record import EndedRequest
from enginehouse.relay.live.live_state import LiveState
from enginehouse.telemetry.counter_transfer import CountedTotals


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """The configuration of a ``version``, pickled, the backends' columns of the board, and the folder of the state.

    ``memories``: what strategies know, by their types; only in the first one that a worker gets.
    """

    version: int
    config: bytes
    columns: dict[str, int]
    folder: str
    memories: dict[str, bytes] = {}


class BackendPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a backend is, and how requests wait for it.

    ``url``: of a launched engine, empty while it does not run; ``None`` for the configured one. ``queue``: ``own`` if
    its replicas have tickets of their own, ``line`` if they share one line, empty if there is no queue. ``unloaded``:
    the replicas that an operator unloads.
    """

    name: str
    url: str | None = None
    queue: str = ""
    unloaded: list[str] = []


class WorkerReport(msgspec.Struct, frozen=True, array_like=True):
    """What has happened since the last report, and what is. ``ended``: how many requests. ``live``, and ``rows`` of
    the last that ended, with the headers that they show, and ``decisions``: only if they were asked for.

    ``busy``: the share of the last seconds in which the event loop worked.
    """

    counted: CountedTotals
    ended: int
    rows: list[EndedRequest]
    decisions: bytes
    busy: float
    requests: int
    body_bytes: int
    engine_bytes: int
    live: list[LiveState] | None
