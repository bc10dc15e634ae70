"""The owner's side of one worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from enginehouse.app.gateway import Gateway
from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Candidate, Route
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.requirements import heard
from enginehouse.fleet.workers import Answers, Latencies, News
from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.processes.workers.channel import Channel, Send
from enginehouse.processes.workers.messages import ToDesk, ToOwner, ToPages, ToWorker, WorkerReport
from enginehouse.processes.workers.pages import PageAnswers
from enginehouse.processes.workers.publisher import Publisher
from enginehouse.processes.workers.reports import add_report, hold, take_outcomes
from enginehouse.processes.workers.tickets import TicketDesk
from enginehouse.processes.workers.worker_request import WorkerRequest
from enginehouse.relay.live.live_state import LiveState
from enginehouse.relay.request import swaps_of


class OwnerParts(NamedTuple):
    """What the owner has for its workers. ``prepare`` is awaited before a page of some path is made.

    ``recall`` asks all workers for the places at a backend that they keep for later requests. ``learned`` tells the
    others what one has learned. ``changed`` is set when a worker becomes ready; ``lost`` is called when it is gone.
    """

    gateway: Gateway
    publisher: Publisher
    prepare: Callable[[str], Awaitable[None]]
    recall: Callable[[str], None]
    learned: Callable[[WorkerLink, dict[str, bytes]], None]
    changed: asyncio.Event
    lost: Callable[[WorkerLink], None]


class WorkerLink(ToOwner):
    """Serves one worker, and shows its requests. ``number``: its place on the board.

    - ``version``: of the configuration that it says it has; 0 until it accepts connections.
    - ``live``: how many requests it has. ``busy``: the share of the processor that its loop takes.
    - ``started``: when it was forked, in seconds. ``is_hung``: it was killed, because it did not answer any more.
    """

    def __init__(self, number: int, pid: int, started: float, parts: OwnerParts) -> None:
        self.number = number
        self.pid = pid
        self.version = 0
        self.busy = 0.0
        self.live = 0
        self.started = started
        self.is_hung = False
        self._parts = parts
        self._channel = Channel(self._lost)
        self.send: Send = self._channel.send
        self._gateway = gateway = parts.gateway
        queues = gateway.relay.context.queues
        self.desk = TicketDesk(number, queues, self.send, parts.publisher.flush, parts.recall)
        self._pages = PageAnswers(gateway.application, self.send, parts.prepare)
        self._requests: dict[int, WorkerRequest] = {}
        self._report: WorkerReport | None = None
        self._channel.attach(ToOwner, self)
        self._channel.attach(ToDesk, self.desk)
        self._channel.attach(ToPages, self._pages)

    async def open(self, connected: socket.socket) -> None:
        """Begin to speak to the worker."""
        await self._channel.open(connected)
        self._parts.publisher.greet(self.send)

    async def report(self, *, past: bool) -> None:
        """Have the worker report now. Does nothing if it dies meanwhile."""
        try:
            await self._channel.ask(ToWorker.report, past)
        except RequestError:
            return

    def close(self) -> None:
        self._channel.close()

    # --- from the worker

    def ready(self, version: int) -> None:
        self.version = version
        self._parts.changed.set()

    def judge(self, good: Answers, latencies: Latencies, news: News) -> None:
        take_outcomes(self._gateway.fleet, good, latencies, news)
        if news:
            self.send(ToWorker.judged)
            self._parts.publisher.correct([name for _, (name, *_) in news])

    def take_report(self, report: WorkerReport) -> None:
        add_report(self._gateway, report, self._report)
        self._report = report
        self.busy, self.live = report.busy, report.requests
        if report.live is not None or not report.requests:
            self._show(report.live or [])

    def take_counted(self, counted: bytes) -> None:
        self._gateway.callers.accounting.receive(counted)

    def tell_routed(self, request_id: str, state: LiveState) -> None:
        route, told = self._route_of(state), state.requirements
        if route is None or told is None:
            return
        for tell in self._gateway.observers.added("routed"):
            tell(request_id, heard(told), route)

    def tell_moved(self, request_id: str, source: str, destination: str, gap_ms: float) -> None:
        for tell in self._gateway.observers.added("moved"):
            tell(request_id, source, destination, gap_ms)

    def tell_finished(self, record: RequestRecord) -> None:
        for tell in self._gateway.observers.added("finished"):
            tell(record)

    def learned(self, news: dict[str, bytes]) -> None:
        self._parts.learned(self, news)

    def log(self, data: bytes) -> None:
        self._gateway.log.ring.write(data)

    def export(self, requests: list[TracedRequest]) -> None:
        if (exporter := self._gateway.exporter) is not None:
            last_swaps = self._gateway.relay.context.counters.last_swaps  # workers know of none
            for each in requests:
                swaps = swaps_of(each.record, last_swaps)
                exporter.add(msgspec.structs.replace(each, swaps=swaps) if swaps else each)

    # --- inside

    def _show(self, states: list[LiveState]) -> None:
        """Have the relay show the live requests as they are now, the same objects for the same requests."""
        shown, self._requests = self._requests, {}
        live = self._gateway.relay.live
        for state in states:
            request = shown.pop(state.number, None)
            if request is None:
                request = WorkerRequest(state, self._channel)
                live[request] = 0
            request.renew(state, self._route_of, self.desk.ticket(state.ticket))
            self._requests[state.number] = request
        for request in shown.values():
            live.pop(request, None)

    def _route_of(self, state: LiveState) -> Route | None:
        if state.replica is None or state.model is None:
            return None
        row = self._gateway.relay.context.fleet.snapshot.candidates(state.model)
        chosen = next((each for each in row if each.replica == state.replica), None)
        if chosen is None:
            backend = state.replica.rpartition("@")[2]
            chosen = Candidate(model=state.model, backend=backend, replica=state.replica)
        return Route(state.asked or state.model, chosen, state.reason, state.attempted)

    def _lost(self) -> None:
        self.desk.release()
        self._pages.close()
        self._show([])
        if self._report is not None:
            hold(self._gateway, self._report, -1)
        self._parts.lost(self)
