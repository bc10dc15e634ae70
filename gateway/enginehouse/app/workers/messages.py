"""What the owner and a worker say to each other. Numbers of tickets, calls and pages are the worker's own."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.app.workers.told_errors import TellingError
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.ticket import Phase
from enginehouse.domain.usage import UsageRow
from enginehouse.fleet.backend_view import BackendView
from enginehouse.fleet.outcome_reports import Answers, Latencies, News
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.relay.live.live_state import LiveState
from enginehouse.telemetry.counter_transfer import CountedTotals, HistogramCounts


class WorkerMessage(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One message. Both sides are of the same version: the owner has forked its workers."""


# --- from the owner


class Configure(WorkerMessage, frozen=True):
    """The configuration of a ``version``, pickled, the backends' columns of the board, and the folder of the state.

    ``memories``: what strategies know, by their types; only in the first one that a worker gets.
    """

    version: int
    config: bytes
    columns: dict[str, int]
    folder: str
    memories: dict[str, bytes] = {}


class Views(WorkerMessage, frozen=True):
    """The state and the place of each backend that has changed."""

    backends: list[tuple[BackendView, BackendPlace]]


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


class Granted(WorkerMessage, frozen=True):
    """A ticket is granted, of the engine's ``generation``."""

    ticket: int
    generation: int


class Refused(WorkerMessage, frozen=True):
    """A ticket is refused. ``joined_load``: for a load that the request had joined."""

    ticket: int
    error: TellingError
    joined_load: bool


class Positions(WorkerMessage, frozen=True):
    """The places of the tickets that wait."""

    places: list[tuple[int, Phase, int]]


class QueueChanged(WorkerMessage, frozen=True):
    """A slot may be free."""


class Judged(WorkerMessage, frozen=True):
    """The next news of backends that ``Outcomes`` told are known. ``Views`` of these backends follow."""


class Recall(WorkerMessage, frozen=True):
    """Requests wait for a backend: give the places there back that are kept for later requests."""

    backend: str


class WatchRequests(WorkerMessage, frozen=True):
    """Tell of each request that is routed, moved or ended, or no longer."""

    wanted: bool


class Drain(WorkerMessage, frozen=True):
    """Call a method of ``Drains`` for a backend or a replica; ``retire`` has an error, ``cut_off`` a reason."""

    step: str
    place: str
    error: TellingError | None = None
    why: str = ""


class Act(WorkerMessage, frozen=True):
    """``cancel`` or ``cut_off`` a live request."""

    request: int
    act: str
    error: TellingError | None = None
    why: str = ""


class MoveRequest(WorkerMessage, frozen=True):
    """Move a live request. A ``Told`` with a ``MovedStream`` follows."""

    call: int
    request: int
    destination: str
    engine_request: str
    cause: str


class WantReport(WorkerMessage, frozen=True):
    """Ask for a report of the live requests; with ``past``, also of those that have ended, and of decisions."""

    call: int
    past: bool


class PageOut(WorkerMessage, frozen=True):
    """An ASGI message for the client of a page; ``None`` after the last one."""

    page: int
    message: dict[str, Any] | None


class Leave(WorkerMessage, frozen=True):
    """Accept nothing new, and end when the live requests have."""


class Accept(WorkerMessage, frozen=True):
    """Accept connections if they are ``wanted``; else let them wait in the kernel."""

    wanted: bool


class PassOnTo(WorkerMessage, frozen=True):
    """Give connections to the gateway that has taken over in the state folder ``folder``."""

    folder: str


class EndLive(WorkerMessage, frozen=True):
    """End the live requests."""


# --- from a worker


class SaysReady(WorkerMessage, frozen=True):
    """The worker accepts connections, with the configuration of ``version``; also after each change of that."""

    version: int


class Outcomes(WorkerMessage, frozen=True):
    """What requests told of backends, as ``OutcomeReports`` collects it."""

    good: Answers
    latencies: Latencies
    news: News


class Submit(WorkerMessage, frozen=True):
    """A request waits for ``replica`` of ``backend``. Times are on the monotonic clock; ``None`` for no deadline."""

    ticket: int
    backend: str
    replica: str
    request_id: str
    priority: int
    arrived: float
    caller: str | None
    deadline: float | None
    turn: float


class AskSlot(WorkerMessage, frozen=True):
    """A ticket that must be granted at once or not at all. A ``Told`` follows: the engine's generation, or ``None``."""

    call: int
    ticket: Submit


class CancelTicket(WorkerMessage, frozen=True):
    """The request does not wait any more."""

    ticket: int


class Served(WorkerMessage, frozen=True):
    """A granted request has ended. ``lost``: its engine, of that ``generation``, broke it off."""

    ticket: int
    keep_alive: float | None = None
    lost: bool = False
    generation: int = 0


class FoundUnloaded(WorkerMessage, frozen=True):
    """The server of a granted request says that its model is not loaded."""

    backend: str
    replica: str
    generation: int


class AskExited(WorkerMessage, frozen=True):
    """Whether the engine of a granted request has exited. A ``Told`` follows."""

    call: int
    backend: str
    replica: str
    generation: int


class AskPage(WorkerMessage, frozen=True):
    """A request for a page of the owner."""

    page: int
    scope: dict[str, Any]


class PageIn(WorkerMessage, frozen=True):
    """An ASGI message of the client of a page."""

    page: int
    message: dict[str, Any]


class PageTaken(WorkerMessage, frozen=True):
    """The client has taken the last message."""

    page: int


class RequestRouted(WorkerMessage, frozen=True):
    """An observer's ``routed``. ``state`` has the route."""

    id: str
    state: LiveState


class RequestMoved(WorkerMessage, frozen=True):
    """An observer's ``moved``."""

    id: str
    source: str
    destination: str
    gap_ms: float


class RequestEnded(WorkerMessage, frozen=True):
    """An observer's ``finished``."""

    record: RequestRecord


class LogLines(WorkerMessage, frozen=True):
    """Lines of the worker's log."""

    data: bytes


class Learned(WorkerMessage, frozen=True):
    """What strategies have learned, by their types. The owner sends it on to all other workers."""

    news: dict[str, bytes]


class Traced(WorkerMessage, frozen=True):
    """Requests for the exporter of traces."""

    requests: list[TracedRequest]


class EndedRow(msgspec.Struct, frozen=True, array_like=True):
    """A request that has ended, as ``Activity`` remembers it. ``headers``: those that its row shows."""

    time: float
    record: RequestRecord
    headers: list[tuple[bytes, bytes]]
    address: str


class WorkerReport(msgspec.Struct, frozen=True, array_like=True):
    """What has happened since the last report, and what is. ``ended``: how many requests. ``live``, and ``rows`` of
    the last that ended, and ``decisions``: only if they were asked for.

    ``busy``: the share of the last seconds in which the event loop worked.
    """

    counted: CountedTotals
    ended: int
    rows: list[EndedRow]
    decisions: bytes
    busy: float
    requests: int
    lag: HistogramCounts
    body_bytes: int
    engine_bytes: int
    records_dropped: int
    filter_drops: dict[str, int]
    engine_drops: dict[str, int]
    live: list[LiveState] | None


class SendsReport(WorkerMessage, frozen=True):
    """The report of each second, or the one that ``WantReport`` asked for, before a ``Told``."""

    report: WorkerReport


class SendsUsage(WorkerMessage, frozen=True):
    """What callers have used since the last time, and the keys made at run time that have come."""

    rows: list[UsageRow]
    used: list[str]


class Told(WorkerMessage, frozen=True):
    """The answer to a call, or an error."""

    call: int
    value: Any
    error: TellingError | None = None
