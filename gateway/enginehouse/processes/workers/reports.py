"""What a worker tells of its requests, and how the owner adds it to what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from enginehouse.app.gateway import Gateway
from enginehouse.app.request_path import RequestPath
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate, Route, replica_name
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.requirements import Requirements, heard
from enginehouse.domain.ticket import Ticket
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.workers import Answers, Latencies, News
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.interfaces.observers import Observer
from enginehouse.processes.workers.channel import Channel, Send
from enginehouse.processes.workers.messages import WorkerReport
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.live_state import LiveState
from enginehouse.relay.request import swaps_of
from enginehouse.telemetry import counter_transfer
from enginehouse.telemetry.loop_load import LoopLoad

_MOST_ANSWERS: Final = 64
"""More answers at once change an average no further than so many do."""
_SHOWN_HEADER: Final = b"user-agent"
_BATCH: Final = 64
_BATCH_EVERY_S: Final = 0.25
_MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
EVENTS: Final = ("routed", "moved", "finished")


class Reporter:
    """Makes the reports of a worker. ``ticket``: the owner's number of a ticket."""

    def __init__(self, path: RequestPath, ticket: Callable[[Ticket], int | None]) -> None:
        self._path = path
        self._relay = path.relay
        self._ticket = ticket
        self._load = LoopLoad()
        self._ended = self._told = 0

    def report(self, *, live: bool, past: bool) -> WorkerReport:
        """What has happened since the last report. ``live``: also the live requests. ``past``: also the ended ones."""
        context = self._relay.context
        count = context.activity.count
        ended, self._ended = count - self._ended, count
        rows = context.activity.since(self._told) if past else []
        self._told = count if past else self._told
        shown = {_SHOWN_HEADER, *(name.encode() for name in self._path.session_headers())}
        return WorkerReport(
            counter_transfer.take(context.counters),
            ended,
            [each._replace(headers=[pair for pair in each.headers if pair[0] in shown]) for each in rows],
            msgspec.json.encode(context.decisions.drain()) if past else b"[]",
            self._load.share(),
            len(self._relay.live),
            self._path.admission.body_memory.held,
            context.engine_memory.held,
            self._live() if live else None,
        )

    def find(self, number: int) -> LiveRequest | None:
        """The live request with this number."""
        return next((each for each, its in self._relay.live.items() if its == number), None)

    def _live(self) -> list[LiveState]:
        waiting = self._relay.context.waiting_room.waiting()
        states = []
        for each, number in self._relay.live.items():
            place = waiting.get(each.ticket) if each.ticket is not None else None
            position = place.position if place is not None else None
            ticket = self._ticket(each.ticket) if each.ticket is not None else None
            states.append(msgspec.structs.replace(each.state(), number=number, ticket=ticket, position=position))
        return states


class ReportDesk:
    """What the owner, ``gateway``, knows of a worker: takes what that tells, and shows it.

    - ``version``: of the configuration that it says it has; 0 until it accepts connections.
    - ``live``: how many requests it has. ``busy``: the share of the processor that its loop takes.
    - ``on_ready`` is called when it has another configuration, and ``on_judged`` with the backends that its news were
      of. ``on_learned`` gets what its strategies have learned, ``on_live`` its live requests.
    """

    def __init__(
        self,
        gateway: Gateway,
        on_ready: Callable[[], None],
        on_judged: Callable[[Sequence[str]], None],
        on_learned: Callable[[dict[str, bytes]], None],
        on_live: Callable[[Sequence[LiveState]], None],
    ) -> None:
        self.version = self.live = 0
        self.busy = 0.0
        self._gateway = gateway
        self._on_ready, self._on_judged = on_ready, on_judged
        self._on_learned, self._on_live = on_learned, on_live
        self._report: WorkerReport | None = None

    def ready(self, version: int) -> None:
        """The worker accepts connections, with the configuration of ``version``; also after each change of that."""
        self.version = version
        self._on_ready()

    def judge(self, good: Answers, latencies: Latencies, news: News) -> None:
        """Judge backends by what requests told of them."""
        take_outcomes(self._gateway.fleet, good, latencies, news)
        if news:
            self._on_judged([name for _, (name, *_) in news])

    def take_report(self, report: WorkerReport) -> None:
        """Add what has happened to what the gateway shows: each second, and when it was asked for."""
        context = self._gateway.relay.context
        counter_transfer.add(context.counters, report.counted)
        self._hold(report, 1)
        self.forget()
        self._report = report
        if report.ended or report.rows:
            context.activity.tell(report.ended, report.rows)
        decisions: list[dict[str, Any]] = msgspec.json.decode(report.decisions)
        if decisions:
            context.decisions.tell(decisions)
        self.busy, self.live = report.busy, report.requests
        if report.live is not None or not report.requests:
            self._on_live(report.live or [])

    def forget(self) -> None:
        """Count the memory out that the worker held at its last report."""
        if self._report is not None:
            self._hold(self._report, -1)

    def _hold(self, report: WorkerReport, times: int) -> None:
        self._gateway.admission.body_memory.held += times * report.body_bytes
        self._gateway.relay.context.engine_memory.held += times * report.engine_bytes

    def take_counted(self, counted: bytes) -> None:
        """Bring what was counted since the last time to the owner's accounting."""
        self._gateway.callers.accounting.receive(counted)

    def tell_routed(self, request_id: str, state: LiveState) -> None:
        """An observer's ``routed``. ``state`` has the route."""
        route, told = self.route_of(state), state.requirements
        if route is None or told is None:
            return
        for tell in self._gateway.observers.added("routed"):
            tell(request_id, heard(told), route)

    def tell_moved(self, request_id: str, source: str, destination: str, gap_ms: float) -> None:
        """An observer's ``moved``."""
        for tell in self._gateway.observers.added("moved"):
            tell(request_id, source, destination, gap_ms)

    def tell_finished(self, record: RequestRecord) -> None:
        """An observer's ``finished``."""
        for tell in self._gateway.observers.added("finished"):
            tell(record)

    def took(self, plugin: PluginId, seconds: float) -> None:
        """A sampled call of a plugin took so long."""
        self._gateway.plugin_times.observe(plugin, seconds)

    def learned(self, news: dict[str, bytes]) -> None:
        """Tell all other processes what strategies have learned, by their types."""
        self._on_learned(news)

    def log(self, data: bytes) -> None:
        """Keep lines of the worker's log."""
        self._gateway.log.ring.write(data)

    def export(self, requests: list[TracedRequest]) -> None:
        """Hand requests to the exporter of traces."""
        if (exporter := self._gateway.exporter) is not None:
            last_swaps = self._gateway.relay.context.counters.last_swaps  # workers know of none
            for each in requests:
                swaps = swaps_of(each.record, last_swaps)
                exporter.add(msgspec.structs.replace(each, swaps=swaps) if swaps else each)

    def route_of(self, state: LiveState) -> Route | None:
        """The route that ``state`` tells, if it has one."""
        if state.replica is None or state.model is None:
            return None
        row = self._gateway.relay.context.fleet.snapshot.candidates(state.model)
        chosen = next((each for each in row if each.replica == state.replica), None)
        if chosen is None:
            backend = state.replica.removeprefix(replica_name(state.model, ""))  # both may have the sign between them
            chosen = Candidate(model=state.model, backend=backend, replica=state.replica)
        return Route(state.asked or state.model, chosen, state.reason, state.attempted)


def take_outcomes(fleet: Fleet, good: Answers, latencies: Latencies, news: News) -> None:
    """Have ``fleet`` judge its backends by what a worker's requests tell."""
    names = {each.name for each in fleet.backends()} if latencies else set()
    for name, number in good.items():
        for _ in range(number):
            fleet.succeeded(name)
    for name, (count, total) in latencies.items():
        if name in names:
            load = fleet.load(name)
            for _ in range(min(count, _MOST_ANSWERS)):
                fleet.answered(load, total / count)
    for method, facts in news:
        getattr(fleet, method)(*facts)


class RequestEvents(Observer):
    """Sends the owner each event of a request, while it wants them."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        chosen = route.chosen
        state = LiveState(
            id=request_id.encode(),
            path=requirements.path,
            requirements=requirements.told(),
            replica=chosen.replica,
            model=chosen.model,
            reason=route.reason,
            attempted=route.attempted,
        )
        self._send(ReportDesk.tell_routed, request_id, state)

    def moved(self, request_id: str, source: str, destination: str, gap_ms: float) -> None:
        self._send(ReportDesk.tell_moved, request_id, source, destination, gap_ms)

    def finished(self, record: RequestRecord) -> None:
        self._send(ReportDesk.tell_finished, record)


class OwnerExporter:
    """Collects traced requests. While the ``owner`` reads too slowly, no further request is traced."""

    def __init__(self, owner: Channel) -> None:
        self._owner = owner
        self._requests: list[TracedRequest] = []
        self._timer: asyncio.TimerHandle | None = None

    def admits(self) -> bool:
        """Whether a request that begins now may be traced."""
        return self._owner.waiting < _MOST_WAITING_BYTES

    def add(self, request: TracedRequest) -> None:
        """Send ``request``, with those that follow soon."""
        self._requests.append(request)
        if len(self._requests) >= _BATCH:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_EVERY_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._requests:
            self._owner.send(ReportDesk.export, self._requests)
            self._requests = []
