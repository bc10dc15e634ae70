"""One worker: connections, router and relay. All else is the owner's."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.app.build import build_drivers
from enginehouse.app.build_router import RouterPlugins, new_router
from enginehouse.app.callers import Callers
from enginehouse.app.findings import Findings
from enginehouse.app.path_plugins import PathPlugins
from enginehouse.app.plan import LONGEST_S
from enginehouse.app.request_path import PathChange, RequestPath
from enginehouse.config.schema import Config
from enginehouse.domain.errors import CannotContinue
from enginehouse.fleet.workers import BackendView, BoardReader, OutcomeReports
from enginehouse.plugin_manager.registry import Registry
from enginehouse.processes.workers.channel import Channel, Send, SentError
from enginehouse.processes.workers.messages import BackendPlace, Configuration
from enginehouse.processes.workers.pages import OwnerPages
from enginehouse.processes.workers.reports import OwnerExporter, ReportDesk, Reporter, RequestEvents
from enginehouse.processes.workers.shared_memory import RoomTurns, WorkerMemory
from enginehouse.processes.workers.tickets import OwnerQueues
from enginehouse.relay.live.live_request import MovedStream
from enginehouse.relay.upstream.outside import Outside
from enginehouse.telemetry.log_ring import LogRing
from enginehouse.telemetry.logs import GatewayLog
from enginehouse.telemetry.observers import notify

_log = logging.getLogger(__name__)
_BEAT_S: Final = 0.1
_REPORT_S: Final = 1.0


class WorkerChannel(Channel):
    """Hands the owner's calls to the parts of a worker, once they are made from the ``first`` configuration.

    After ``hold``, they wait for ``take_held``.
    """

    def __init__(self) -> None:
        super().__init__(self._lost)
        self.first: asyncio.Future[Configuration] = asyncio.get_running_loop().create_future()
        self.when_lost: list[Callable[[], None]] = []
        self._held: list[tuple[str, int, msgspec.Raw]] | None = []

    def hold(self) -> None:
        self._held = []

    def take_held(self) -> None:
        """Hand over what has come meanwhile, up to a call that holds the next ones again."""
        held, self._held = self._held or (), None
        for name, call, arguments in held:
            self._receive(name, call, arguments)
        if self.closed:
            self._lost()

    def _receive(self, name: str, call: int, arguments: msgspec.Raw) -> None:
        if self._held is None:
            super()._receive(name, call, arguments)
        elif name == Worker.configure.__qualname__ and not self.first.done():
            (first,) = msgspec.msgpack.decode(arguments, type=tuple[Configuration])
            self.first.set_result(first)
        else:
            self._held.append((name, call, arguments))

    def _lost(self) -> None:
        if not self.first.done():
            self.first.cancel()
        for lost in self.when_lost:
            lost()


class SentLog(LogRing):
    """Sends the lines of a worker's log to the owner, who keeps them. Keeps none itself."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def write(self, data: bytes) -> None:
        self._send(ReportDesk.log, data)


class Worker:
    """Relays requests along ``path``, by the configuration and the state of backends that the owner sends.

    The owner answers what engines do not, as ``pages``.
    """

    def __init__(
        self,
        number: int,
        first: Configuration,
        registry: Registry,
        channel: WorkerChannel,
        memory: WorkerMemory,
        log: GatewayLog,
    ) -> None:
        self.number = number
        self._board = board = memory.board
        self._channel = channel
        self.version = first.version
        config = _share_of(pickle.loads(first.config), board.workers)
        outside = Outside()
        self._now = outside.clock.now
        self.exporter = OwnerExporter(channel)
        self.queues = OwnerQueues(
            channel, lambda: self.path.config.scheduling.priorities, lambda: self._queue_changed()
        )
        findings = Findings()
        plugins = PathPlugins(config, registry, outside, findings)
        router = RouterPlugins(config, registry, findings)
        findings.check()
        self.path = path = RequestPath(
            config,
            registry,
            build_drivers(config, registry, {}, outside),
            outside,
            self.queues.by_backend,
            log,
            self.exporter,
            Callers(config, registry, outside.clock, memory.accounts(number)),
            plugins,
            router,
            observed=False,
        )
        self.relay, self.admission = path.relay, path.admission
        self._queue_changed = partial(notify, path.observers.callbacks("queue_changed"))
        self._reader = BoardReader(self._now)
        self._outcomes = OutcomeReports(
            lambda good, latencies, news: channel.send(ReportDesk.judge, good, latencies, news)
        )
        path.fleet.reports, path.fleet.refresh = self._outcomes, self._reader.refresh
        self.relay.context.router.strategies.recall(first.memories)
        room = self.relay.context.waiting_room
        room.join_others(RoomTurns(board, number, room.plan, room.models))
        path.open(Path(first.folder), lambda counted: channel.send(ReportDesk.take_counted, counted))
        self._reporter = Reporter(path, self.queues.number)
        self.pages = OwnerPages(channel.send, path.paths)
        self._tasks = BackgroundTasks()
        self._events: RequestEvents | None = None
        self._hangs = False
        self._share_load(first.columns)
        for part in (self, self.queues, self.pages):
            channel.attach(part)
        channel.when_lost.append(self.pages.lost)

    def start(self) -> None:
        """Begin to report, on the running event loop."""
        self.path.start()
        self._tasks.start(self.path.callers.start())
        self.path.follow_caches()
        self._beat()
        self._tasks.every(_BEAT_S, self._beat)
        self._tasks.every(_REPORT_S, self._report)
        self._tasks.every(_REPORT_S, self._sample_plugins)

    def tell_ready(self) -> None:
        """Tell the owner that connections are accepted."""
        self._channel.send(ReportDesk.ready, self.version)

    async def stop(self) -> None:
        """End requests, and send the last report."""
        self.relay.refuse_new()
        self.relay.close()
        self.path.caches.close()
        await self.path.close()
        self.exporter.flush()
        self._outcomes.flush()
        self._report()
        self._tasks.cancel()

    # --- from the owner

    def configure(self, configuration: Configuration) -> None:
        """Put another configuration in force. The first one comes before all else.

        A thread does the larger part of it, so that requests go on. What the owner says next is of that configuration.
        """
        self._channel.hold()
        self._tasks.start(self._change(configuration))

    def follow(self, backends: list[tuple[BackendView, BackendPlace]]) -> None:
        """Take over the state of backends."""
        for view, place in backends:
            upstream = self.relay.context.upstreams.get(place.name)
            if upstream is None:
                continue
            if place.url is not None and upstream.pool.origin.url != place.url:
                upstream.locate(place.url)
            self.queues.place(place, self._hosts[place.name])
            if not self._outcomes.awaits_judgement(view.name):
                self.path.fleet.follow(view)
        self._queue_changed()

    def judged(self) -> None:
        """The next news of backends that were told are known. The state of these backends follows."""
        self._outcomes.judged()

    def queue_changed(self) -> None:
        """Let requests that wait look for a slot: one may be free."""
        self._reader.expire()
        self._queue_changed()

    def watch_requests(self, wanted: bool) -> None:
        """Begin to tell of each request that is routed, moved or ended, if that is ``wanted``; else end it."""
        if wanted and self._events is None:
            self._events = RequestEvents(self._channel.send)
            self.path.observers.add(self._events)
        elif not wanted and self._events is not None:
            self.path.observers.remove(self._events)
            self._events = None

    def learn(self, news: dict[str, bytes]) -> None:
        """Tell the strategies what they have learned in another worker."""
        self.relay.context.router.strategies.hear(news)

    def see(self, view: bytes) -> None:
        """Show the strategies the figures of all engines, as a service has published them."""
        self.relay.context.router.strategies.on_view(pickle.loads(view), self.path.config.rescheduling)

    def drain(self, step: str, place: str, error: SentError | None, why: str) -> None:
        """Call a method of ``Drains`` for a backend or a replica, with an error or a reason if it takes one."""
        more = [error.received()] if error is not None else [why] if why else []
        getattr(self.relay.drains, step)(place, *more)

    def fail(self, request: int, error: SentError) -> None:
        """End a live request with an error."""
        if (live := self._reporter.find(request)) is not None:
            live.fail(error.received())

    def cut_off(self, request: int, why: str) -> None:
        """Act as if the engine of a live request had broken it off."""
        if (live := self._reporter.find(request)) is not None:
            live.cut_off(why)

    async def move(self, request: int, destination: str, engine_request: str, cause: str) -> MovedStream:
        """Move a live request. Raises ``RequestError``."""
        live = self._reporter.find(request)
        if live is None:
            raise CannotContinue("The request has ended")
        return await live.move(destination, engine_request, cause)

    async def report(self, past: bool) -> None:
        """Send a report with the live requests; with ``past``, also with those that have ended, and decisions."""
        self._outcomes.flush()
        self._report(live=True, past=past)

    # --- inside

    async def _change(self, configuration: Configuration) -> None:
        try:
            change = await run_within(LONGEST_S, self._prepared(configuration))
            change.complete()
            change.carry_out()
            self.version = configuration.version
            for name in [name for name in self.queues.by_backend if name not in self.relay.context.upstreams]:
                del self.queues.by_backend[name]
            self._share_load(configuration.columns)
            self.tell_ready()
        except TimeoutError:
            _log.error("A driver has not returned for %g s, so another worker must take this one's place", LONGEST_S)
            self._hangs = True
        except Exception:
            _log.exception("A worker could not take the new configuration, and goes on with the one before")
        finally:
            self._channel.take_held()

    async def _prepared(self, configuration: Configuration) -> PathChange:
        path, config = self.path, _share_of(pickle.loads(configuration.config), self._board.workers)
        drivers = build_drivers(config, path.registry, path.drivers, path.outside)
        findings = Findings()
        router = new_router(path.config, config, path.registry, findings)
        findings.check()
        return await run_slowly(PathChange, path, config, drivers, router)

    def _beat(self) -> None:
        if self._hangs:  # the owner replaces a worker that does not beat
            return
        self._board.beats[self.number] = self._now()
        self._outcomes.flush()
        if news := self.relay.context.router.strategies.news():
            self._channel.send(ReportDesk.learned, news)

    def _sample_plugins(self) -> None:
        for call in (*self.relay.context.router.sampled, *self.path.observers.sampled):
            call.sample(lambda plugin, seconds: self._channel.send(ReportDesk.took, plugin, seconds))

    def _report(self, *, live: bool = False, past: bool = False) -> None:
        self._channel.send(ReportDesk.take_report, self._reporter.report(live=live, past=past))

    def _share_load(self, columns: dict[str, int]) -> None:
        self._hosts = {each.name: each.host for each in self.path.fleet.backends()}
        loads = []
        for name in self.relay.context.upstreams:
            load, column = self.path.fleet.load(name), columns.get(name)
            load.share(None if column is None else self._board.cells(column), self.number)
            loads.append(load)
        self._reader.watch(loads)


def _share_of(config: Config, workers: int) -> Config:
    """``config`` with the limits of memory that one of the ``workers`` has."""
    server = config.server
    # the share of a worker must hold at least one body; 0 stands for no limit
    body_memory = server.max_body_memory and max(server.max_body, server.max_body_memory // workers)
    engine_memory = server.max_engine_memory and max(1, server.max_engine_memory // workers)
    server = msgspec.structs.replace(server, max_body_memory=body_memory, max_engine_memory=engine_memory)
    return msgspec.structs.replace(config, server=server)
