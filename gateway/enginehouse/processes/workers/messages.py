"""What the owner and a worker say to each other: each calls methods of the other, whose classes stand here.

Numbers of tickets, requests and pages are the worker's own. Both sides are of the same version: the owner has forked
its workers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.domain.request_record import EndedRequest, RequestRecord
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.fleet.workers import Answers, BackendView, Latencies, News
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.processes.workers.channel import SentError
from enginehouse.relay.live.live_request import MovedStream
from enginehouse.relay.live.live_state import LiveState
from enginehouse.telemetry.counter_transfer import CountedTotals, HistogramCounts

# --- from the owner


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


class ToWorker:
    """What the owner asks of a worker."""

    def configure(self, configuration: Configuration) -> None:
        """Put another configuration in force. The first one comes before all else."""

    def follow(self, backends: list[tuple[BackendView, BackendPlace]]) -> None:
        """Take over the state of backends."""

    def judged(self) -> None:
        """The next news of backends that were told are known. The state of these backends follows."""

    def queue_changed(self) -> None:
        """Let requests that wait look for a slot: one may be free."""

    def watch_requests(self, wanted: bool) -> None:
        """Begin to tell of each request that is routed, moved or ended, if that is ``wanted``; else end it."""

    def learn(self, news: dict[str, bytes]) -> None:
        """Tell the strategies what they have learned in another worker."""

    def drain(self, step: str, place: str, error: SentError | None, why: str) -> None:
        """Call a method of ``Drains`` for a backend or a replica, with an error or a reason if it takes one."""

    def fail(self, request: int, error: SentError) -> None:
        """End a live request with an error."""

    def cut_off(self, request: int, why: str) -> None:
        """Act as if the engine of a live request had broken it off."""

    async def move(self, request: int, destination: str, engine_request: str, cause: str) -> MovedStream:
        """Move a live request. Raises ``RequestError``."""
        raise NotImplementedError

    async def report(self, past: bool) -> None:
        """Send a report with the live requests; with ``past``, also with those that have ended, and decisions."""


class ToWorkerQueues:
    """What the owner tells of the tickets that wait with it."""

    def granted(self, ticket: int, generation: int) -> None:
        """A ticket is granted, of the engine's ``generation``."""

    def refused(self, ticket: int, error: SentError, joined_load: bool) -> None:
        """A ticket is refused. ``joined_load``: for a load that the request had joined."""

    def put_positions(self, places: list[tuple[int, Phase, int]]) -> None:
        """Take the places of the waiting tickets."""

    def recall(self, backend: str) -> None:
        """Requests wait for a backend: give the places there back that are kept for later requests."""


class ToWorkerPages:
    """What the owner answers on a worker's connections."""

    def page_out(self, page: int, message: dict[str, Any] | None) -> None:
        """Send the client of a page an ASGI message; ``None`` after the last one."""


class ToWorkerServer:
    """What the owner asks for with regard to connections."""

    def leave(self, at_once: bool) -> None:
        """Accept nothing new, and stop when the live requests have ended, or ``at_once``."""

    def accept_if(self, wanted: bool) -> None:
        """Accept connections if they are ``wanted``; else let them wait in the kernel."""

    def pass_on_to(self, folder: str) -> None:
        """Give connections to the gateway that has taken over in the state folder ``folder``."""


# --- from a worker


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
    lag: HistogramCounts
    body_bytes: int
    engine_bytes: int
    records_dropped: int
    filter_drops: dict[str, int]
    engine_drops: dict[str, int]
    live: list[LiveState] | None


class ToOwner:
    """What a worker tells the owner."""

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

    def learned(self, news: dict[str, bytes]) -> None:
        """Tell all other workers what strategies have learned, by their types."""

    def log(self, data: bytes) -> None:
        """Keep lines of the worker's log."""

    def export(self, requests: list[TracedRequest]) -> None:
        """Hand requests to the exporter of traces."""


class ToDesk:
    """What a worker asks of the owner's queues."""

    def submit(self, number: int, backend: str, ticket: Ticket) -> None:
        """Ask for the replica of ``ticket``; ``granted`` or ``refused`` follows. Times are on the monotonic clock."""

    async def ask_slot(self, number: int, backend: str, ticket: Ticket) -> int | None:
        """The engine's generation if it is granted, at once or as soon as workers have given back what they keep."""

    async def ask_exited(self, backend: str, replica: str, generation: int) -> bool:
        """Whether the engine of a granted request, which broke it off, has exited."""
        raise NotImplementedError

    def cancel(self, ticket: int) -> None:
        """Withdraw a ticket. One whose grant is on its way to the worker is given back."""

    def served(self, ticket: int, caller: str | None, keep_alive: float | None) -> None:
        """Note the end of a granted request of ``caller``. Tickets of a replica are alike: it may be another's."""

    def lost(self, ticket: int, generation: int) -> None:
        """Note that the engine of this ``generation`` broke a granted request off."""

    def found_unloaded(self, backend: str, replica: str, generation: int) -> None:
        """Note that the server of a granted request says that its model is not loaded."""


class ToPages:
    """What a worker's clients ask of the owner's pages."""

    def page_asked(self, page: int, scope: dict[str, Any]) -> None:
        """Answer a request for a page."""

    def page_in(self, page: int, message: dict[str, Any]) -> None:
        """Take an ASGI message of the client."""

    def page_taken(self, page: int) -> None:
        """The client has taken the last piece."""
