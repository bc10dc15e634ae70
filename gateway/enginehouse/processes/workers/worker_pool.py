"""The owner's workers: started, replaced when they die or hang, and ended; and its side of each."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import wait_within
from enginehouse.app.gateway import Gateway
from enginehouse.domain.errors import RequestError
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.http.page_facts import WorkerFigures
from enginehouse.interfaces.observers import Observer
from enginehouse.processes.workers.channel import Channel, Send, SentError
from enginehouse.processes.workers.fork_server import ForkServer, NoForkServer
from enginehouse.processes.workers.pages import PageAnswers
from enginehouse.processes.workers.publisher import Publisher
from enginehouse.processes.workers.reports import EVENTS, ReportDesk
from enginehouse.processes.workers.shared_memory import WorkerMemory
from enginehouse.processes.workers.tickets import OwnerQueues, TicketDesk
from enginehouse.processes.workers.worker import Worker
from enginehouse.processes.workers.worker_request import WorkerRequest
from enginehouse.processes.workers.worker_server import WorkerServer
from enginehouse.relay.live.live_state import LiveState
from enginehouse.telemetry.loop_load import worker_row

P = ParamSpec("P")

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.1
_POSITIONS_EVERY: Final = 5
_SHOWN_EVERY: Final = 10
"""In looks: so often the owner asks for the live requests, if only drains and lists of backends depend on them."""
_SPARE_EVERY_S: Final = 1.0
_START_S: Final = 30.0
"""A worker that has not begun by then hangs."""
_YOUNG_S: Final = 2.0
"""One that dies sooner probably always does, so the next one waits."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_REPORT_WITHIN_S: Final = 1.0
_RECALL_EVERY_S: Final = 0.02
_UNREFRESHED: Final = ("/health", "/ready", "/dashboard", "/v1/models")
"""Pages that show nothing of what only workers know."""


class WorkerPool(Observer):
    """Keeps as many workers as ``memory`` has places for. ``server`` forks their processes.

    ``replaced``: how many workers were replaced, by the reason: ``died`` or ``hung``. ``busy``: the share of the
    processor that each loop takes, if ``telemetry.per_worker`` asks for it. ``on_lost`` is called when the last worker
    has ended and none can be started any more.
    """

    def __init__(self, gateway: Gateway, memory: WorkerMemory, server: ForkServer) -> None:
        self.replaced: Counter[str] = Counter({"died": 0, "hung": 0})
        self.busy: dict[int, float] = {}
        self.links: dict[int, WorkerLink] = {}
        self.on_lost: Callable[[], None] = lambda: None
        self.gateway = gateway
        self._memory = memory
        self._board = board = memory.board
        self._server = server
        self._now = gateway.relay.context.clock.now
        self.publisher = Publisher(gateway.current, board, self.send)
        self.changed = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._pause: dict[int, float] = {}
        self._queue_news: asyncio.Handle | None = None
        self._turns = 0
        self._refreshing: asyncio.Task[None] | None = None
        self._leaving = False
        self._recalled: dict[str, float] = {}
        self._watched = False

    async def start(self) -> None:
        """Start the workers, and wait until all of them accept connections."""
        gateway = self.gateway
        gateway.relay.drains.hand_on = self._drain
        gateway.current.on_change = self.publisher.configure
        gateway.current.on_view = lambda view: self.send(Worker.see, pickle.dumps(view))
        gateway.workers = self.rows
        gateway.worker_figures = WorkerFigures(self.replaced, self.busy)
        gateway.observers.on_change = self._watch
        gateway.observers.add(self)
        self.publisher.configure()  # now the folder of the state is known
        self.publisher.open()
        await self._keep_spare()
        for number in range(self._board.workers):
            self._tasks.start(self._fill(number, 0.0))
        self._tasks.every(_LOOK_EVERY_S, self._look)
        self._tasks.every(_SPARE_EVERY_S, self._keep_spare)
        while sum(link.reports.version > 0 for link in self.links.values()) < self._board.workers:
            self.changed.clear()
            await self.changed.wait()

    @property
    def serves(self) -> bool:
        """Whether some worker accepts connections, or none should any more."""
        return self._leaving or any(link.reports.version for link in self.links.values())

    def accept(self, wanted: bool) -> None:
        """Have the workers accept connections, or none for now: these wait in the kernel."""
        self.send(WorkerServer.accept_if, wanted)

    def pass_on(self, folder: Path) -> None:
        """Have the workers give their connections to the gateway that has taken over in the state folder ``folder``."""
        self.send(WorkerServer.pass_on_to, str(folder))

    def end_live(self) -> None:
        self.send(WorkerServer.leave, True)

    def send(self, method: Callable[Concatenate[Any, P], None], /, *arguments: P.args, **no_others: P.kwargs) -> None:
        """Call a method of all workers."""
        for link in self.links.values():
            link.send(method, *arguments, **no_others)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The workers, as ``/api/status`` shows them."""
        told = [(link.pid, link.reports) for _, link in sorted(self.links.items())]
        return [worker_row(pid, each.live, each.version, each.busy) for pid, each in told]

    async def refresh(self) -> None:
        """Have every worker report now, also of the past. Those who ask meanwhile share the next reports."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refresh())
        else:
            before = self._refreshing  # it may have begun before the caller's news
            await asyncio.wait([before])
            if self._refreshing is before:
                self._refreshing = asyncio.ensure_future(self._refresh())
        await asyncio.shield(self._refreshing)

    async def leave(self, within: float) -> None:
        """Have the workers accept nothing new, and wait until they have ended; after ``within`` seconds, end them."""
        self._leaving = True
        self._server.close()  # it has the listening sockets too
        ends = asyncio.get_running_loop().time() + within
        for at_once, limit in ((False, ends), (True, ends + _START_S)):
            self.send(WorkerServer.leave, at_once)
            await self._gone_by(limit)
        for link in self.links.values():
            self._server.kill(link.pid)

    def close(self) -> None:
        """End the process that forks workers, and all messages."""
        self._leaving = True
        self.gateway.relay.drains.hand_on = None
        self.gateway.observers.on_change = None
        self.publisher.close()
        self._tasks.cancel()
        self._server.close()
        for link in self.links.values():
            link.close()

    def queue_changed(self) -> None:
        """A slot may be free for a request that waits in a worker."""
        if self._queue_news is None and any(self._board.waiting):
            self._queue_news = asyncio.get_running_loop().call_soon(self._tell_queues)

    # --- inside

    async def _fill(self, number: int, pause: float) -> None:
        """Start a worker in ``pause`` seconds. While that is impossible, try again, after ever longer pauses."""
        while not self._leaving:
            await asyncio.sleep(pause)
            try:
                await self._begin(number)
                return
            except NoForkServer as error:
                _log.error(
                    "No worker can be started any more, so restart the gateway or let a new one take over: %s", error
                )
                if not self.links and not self._leaving:
                    self.on_lost()
                return
            except OSError as error:
                pause = self._longer_pause(number)
                _log.error("No worker can be started; the next attempt follows in %.1f s: %s", pause, error)

    async def _begin(self, number: int) -> None:
        pid, connected = await self._server.fork(number)
        self._board.beats[number] = 0.0
        self.links[number] = link = WorkerLink(number, pid, self._now(), self)
        try:
            await link.open(connected)
        except OSError:
            del self.links[number]
            connected.close()
            raise
        link.send(Worker.watch_requests, self._watched)

    def gone(self, link: WorkerLink) -> None:
        """A worker is gone: start another one in its place."""
        number = link.number
        if self.links.get(number) is link:
            del self.links[number]
        self._board.clear(number)
        self.gateway.callers.accounting.process_died(number)
        self.changed.set()
        if self._leaving:
            return
        why = "hung" if link.is_hung else "died"
        self.replaced[why] += 1
        _log.error("The worker with pid %d has %s, and is replaced", link.pid, why)
        if self._now() - link.started >= _YOUNG_S:
            self._pause.pop(number, None)
            pause = 0.0
        else:
            pause = self._longer_pause(number)
        self._tasks.start(self._fill(number, pause))

    def _longer_pause(self, number: int) -> float:
        self._pause[number] = pause = min(max(_FIRST_PAUSE_S, self._pause.get(number, 0.0) * 2), _LONGEST_PAUSE_S)
        return pause

    async def _keep_spare(self) -> None:
        with suppress(OSError):  # tried again soon
            await self._server.keep_spare()

    def _look(self) -> None:
        """Kill workers that hang, and tell the others the places of their tickets."""
        now, longest = self._now(), self.gateway.config.server.worker_timeout
        for link in self.links.values():
            beat = self._board.beats[link.number]
            silent = now - beat > longest if beat else now - link.started > _START_S
            if silent and longest and not link.is_hung:
                link.is_hung = True
                _log.error("The worker with pid %d has not answered for %.1f s", link.pid, now - beat)
                self._server.kill(link.pid)
        if self.gateway.config.telemetry.per_worker:
            self.busy.update({number: link.reports.busy for number, link in sorted(self.links.items())})
        self._turns += 1
        if self._turns % _POSITIONS_EVERY == 0:
            self._tell_positions()
        if self._turns % self._shown_every() == 0 and any(link.reports.live for link in self.links.values()):
            self._tasks.start(self._refresh(past=False))

    def _shown_every(self) -> int:
        """The number of looks after which the live requests are asked for: as often as their readers look at them."""
        rescheduling = self.gateway.config.rescheduling
        every = _POSITIONS_EVERY if self._watched else _SHOWN_EVERY
        return min(every, max(1, int(rescheduling.interval / _LOOK_EVERY_S))) if rescheduling.enabled else every

    def _watch(self) -> None:
        """Have the workers tell of their requests' events while one of the gateway's own observers wants them."""
        wanted = any(self.gateway.observers.added(event) for event in EVENTS)
        if wanted is not self._watched:
            self._watched = wanted
            self.send(Worker.watch_requests, wanted)

    def _tell_positions(self) -> None:
        waiting = [link for link in self.links.values() if link.desk.waits]
        if waiting:
            places: dict[Ticket, tuple[Phase, int]] = {
                ticket: (each.phase, each.position) for ticket, each in self.gateway.engines.waiting().items()
            }
            for link in waiting:
                link.send(OwnerQueues.put_positions, link.desk.positions(places))

    def _tell_queues(self) -> None:
        self._queue_news = None
        self.publisher.flush()
        for link in self.links.values():
            if self._board.waiting[link.number]:
                link.send(Worker.queue_changed)

    def _drain(self, step: str, place: str, error: RequestError | None, why: str) -> None:
        for name in self.gateway.relay.context.upstreams:
            if place == name or place.endswith(f"@{name}"):  # names may have the sign between them
                self.publisher.note(name)
        self.publisher.flush()  # who moves requests must see where they may not go, and why
        self.send(Worker.drain, step, place, SentError.of(error) if error is not None else None, why)

    def recall(self, backend: str) -> None:
        """Ask for the places that workers keep, unless that was done just now."""
        now = self._now()
        if now - self._recalled.get(backend, 0.0) >= _RECALL_EVERY_S:
            recent = {name: at for name, at in self._recalled.items() if now - at < _RECALL_EVERY_S}
            self._recalled = {**recent, backend: now}
            self.send(OwnerQueues.recall, backend)

    def learned(self, teller: WorkerLink, news: dict[str, bytes]) -> None:
        """Tell the others what the strategies of one worker have learned."""
        self.gateway.relay.context.router.strategies.hear(news)
        for link in self.links.values():
            if link is not teller:
                link.send(Worker.learn, news)

    async def prepare(self, path: str) -> None:
        """Have all workers report before a page of ``path`` is made that shows what they know."""
        if not path.startswith(_UNREFRESHED):
            await self.refresh()

    async def _refresh(self, *, past: bool = True) -> None:
        self.publisher.refresh_load()
        asked = [asyncio.ensure_future(link.report(past=past)) for link in self.links.values()]
        if asked:
            await asyncio.wait(asked, timeout=_REPORT_WITHIN_S)
            for each in asked:
                each.cancel()

    async def _gone_by(self, limit: float) -> None:
        loop = asyncio.get_running_loop()
        while self.links and loop.time() < limit:
            self.changed.clear()
            await wait_within(limit - loop.time(), self.changed)


class WorkerLink:
    """Serves one worker, and shows its requests. ``number``: its place on the board.

    ``started``: when it was forked, in seconds. ``is_hung``: it was killed, because it did not answer any more.
    ``desk`` has its tickets, ``reports`` what it tells.
    """

    def __init__(self, number: int, pid: int, started: float, pool: WorkerPool) -> None:
        self.number = number
        self.pid = pid
        self.started = started
        self.is_hung = False
        self._pool = pool
        self._channel = Channel(self._lost)
        self.send: Send = self._channel.send
        gateway = pool.gateway
        queues = gateway.relay.context.queues
        self.desk = TicketDesk(number, queues, self.send, pool.publisher.flush, pool.recall)
        learned = partial(pool.learned, self)
        self.reports = ReportDesk(gateway, pool.changed.set, self._judged, learned, self._show)
        self._pages = PageAnswers(gateway.application, self.send, pool.prepare)
        self._live = gateway.relay.live
        self._requests: dict[int, WorkerRequest] = {}
        for part in (self.desk, self.reports, self._pages):
            self._channel.attach(part)

    async def open(self, connected: socket.socket) -> None:
        """Begin to speak to the worker."""
        await self._channel.open(connected)
        self._pool.publisher.greet(self.send)

    async def report(self, *, past: bool) -> None:
        """Have the worker report now. Does nothing if it dies meanwhile."""
        try:
            await self._channel.ask(Worker.report, past)
        except RequestError:
            return

    def close(self) -> None:
        self._channel.close()

    def _judged(self, backends: Sequence[str]) -> None:
        self.send(Worker.judged)
        self._pool.publisher.correct(backends)

    def _show(self, states: Sequence[LiveState]) -> None:
        """Have the relay show the live requests as they are now, the same objects for the same requests."""
        shown, self._requests = self._requests, {}
        for state in states:
            request = shown.pop(state.number, None)
            if request is None:
                request = WorkerRequest(state, self._channel)
                self._live[request] = 0
            request.renew(state, self.reports.route_of, self.desk.ticket(state.ticket))
            self._requests[state.number] = request
        for request in shown.values():
            self._live.pop(request, None)

    def _lost(self) -> None:
        self.desk.release()
        self._pages.close()
        self._show([])
        self.reports.forget()
        self._pool.gone(self)
