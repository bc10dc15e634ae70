"""What the owner and a worker tell each other.

Each calls methods of the other's parts. Numbers of tickets, requests and pages are the worker's own. Both sides are of
the same version: the owner has forked its workers.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request_record import EndedRequest, RequestRecord
from enginehouse.fleet.workers import Answers, Latencies, News
from enginehouse.interfaces.exporters import TracedRequest
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


class ToOwner(Protocol):
    """What a worker tells the owner, whose ``WorkerLink`` imports the worker's own class."""

    def ready(self, version: int) -> None:
        """The worker accepts connections, with the configuration of ``version``; also after each change of that."""

    def judge(self, good: Answers, latencies: Latencies, news: News) -> None:
        """Judge backends by what requests told of them."""

    def take_report(self, report: WorkerReport) -> None:
        """Add what has happened to what the gateway shows: each second, and when it was asked for."""

    def take_counted(self, counted: bytes) -> None:
        """Bring what was counted since the last time to the owner's accounting."""

    def tell_routed(self, request_id: str, state: LiveState) -> None:
        """An observer's ``routed``. ``state`` has the route."""

    def tell_moved(self, request_id: str, source: str, destination: str, gap_ms: float) -> None:
        """An observer's ``moved``."""

    def tell_finished(self, record: RequestRecord) -> None:
        """An observer's ``finished``."""

    def took(self, plugin: PluginId, seconds: float) -> None:
        """A sampled call of a plugin took so long."""

    def learned(self, news: dict[str, bytes]) -> None:
        """Tell all other workers what strategies have learned, by their types."""

    def log(self, data: bytes) -> None:
        """Keep lines of the worker's log."""

    def export(self, requests: list[TracedRequest]) -> None:
        """Hand requests to the exporter of traces."""
