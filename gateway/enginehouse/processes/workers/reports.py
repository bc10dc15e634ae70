"""What a worker tells of its requests, and how the owner adds it to what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from enginehouse.app.gateway import Gateway
from enginehouse.app.request_path import RequestPath
from enginehouse.domain.replica import Route
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.ticket import Ticket
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.workers import Answers, Latencies, News
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.interfaces.observers import Observer
from enginehouse.processes.workers.channel import Channel, Send
from enginehouse.processes.workers.messages import ToOwner, WorkerReport
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.live_state import LiveState
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


def add_report(gateway: Gateway, report: WorkerReport, before: WorkerReport | None) -> None:
    """Add what a worker has counted to what the owner, ``gateway``, shows; ``before``: its last report."""
    context = gateway.relay.context
    counter_transfer.add(context.counters, report.counted)
    hold(gateway, report, 1)
    if before is not None:
        hold(gateway, before, -1)
    if report.ended or report.rows:
        context.activity.tell(report.ended, report.rows)
    decisions: list[dict[str, Any]] = msgspec.json.decode(report.decisions)
    if decisions:
        context.decisions.tell(decisions)


def hold(gateway: Gateway, report: WorkerReport, times: int) -> None:
    """Count the memory that a worker holds in, or with -1 out again."""
    gateway.admission.body_memory.held += times * report.body_bytes
    gateway.relay.context.engine_memory.held += times * report.engine_bytes


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
        self._send(ToOwner.tell_routed, request_id, state)

    def moved(self, request_id: str, source: str, destination: str, gap_ms: float) -> None:
        self._send(ToOwner.tell_moved, request_id, source, destination, gap_ms)

    def finished(self, record: RequestRecord) -> None:
        self._send(ToOwner.tell_finished, record)


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
            self._owner.send(ToOwner.export, self._requests)
            self._requests = []
