"""One worker: doors, admission, router and relay. All else is the owner's."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.api.application import build_application
from enginehouse.api.pages.engine_pages import EnginePages
from enginehouse.api.pages.protocols import protocol_doors
from enginehouse.api.pages.upstream import UpstreamRoute
from enginehouse.app.build import (
    build_admission,
    build_drivers,
    renew_upstreams,
)
from enginehouse.app.build_fleet import build_fleet
from enginehouse.app.build_relay import RelayParts, build_relay, change_relay
from enginehouse.app.build_router import build_router, needs_new_router
from enginehouse.app.callers import Callers
from enginehouse.app.plugin_instances import create, create_installed
from enginehouse.app.workers.messages import (
    Act,
    Configure,
    Drain,
    Granted,
    Judged,
    Learned,
    MoveRequest,
    PageOut,
    Positions,
    QueueChanged,
    Recall,
    Refused,
    SaysReady,
    SendsReport,
    SendsUsage,
    Told,
    Views,
    WantReport,
    WatchRequests,
    telling,
    told,
)
from enginehouse.app.workers.outcomes import OutcomeSender
from enginehouse.app.workers.pages import OwnerPages
from enginehouse.app.workers.remote_queue import OwnerQueues
from enginehouse.app.workers.reports import Reporter
from enginehouse.app.workers.request_events import RequestEvents
from enginehouse.app.workers.room_turns import RoomTurns
from enginehouse.app.workers.traces import OwnerExporter
from enginehouse.app.workers.worker_channel import Handlers, WorkerChannel
from enginehouse.app.workers.worker_memory import WorkerMemory
from enginehouse.config.aliases import Aliases
from enginehouse.config.schema import Config
from enginehouse.config.secret_variables import secret_values
from enginehouse.domain.errors import CannotContinue, RequestError
from enginehouse.domain.usage import UsageRow
from enginehouse.engines.kv_events.followed_caches import CacheView, FollowedCaches, kv_events_of
from enginehouse.fleet.load_board import BoardReader
from enginehouse.interfaces.protocols import Protocol
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.outside import Outside
from enginehouse.telemetry.access_log import AccessLog
from enginehouse.telemetry.logs import GatewayLog, configure_logs
from enginehouse.telemetry.loop_watch import LoopMonitor
from enginehouse.telemetry.observers import Observers, notify

_log = logging.getLogger(__name__)

_BEAT_S: Final = 0.1
_REPORT_S: Final = 1.0


class Worker:
    """Relays requests by the configuration and the state of backends that the owner sends.

    ``application`` answers what the fast door does not. ``loop_monitor``: of its event loop.
    """

    def __init__(
        self,
        number: int,
        first: Configure,
        registry: Registry,
        channel: WorkerChannel,
        memory: WorkerMemory,
        log: GatewayLog,
    ) -> None:
        self.number = number
        self._board = board = memory.board
        self.config = config = _share_of(pickle.loads(first.config), board.workers)
        self.version = first.version
        self._registry = registry
        self._channel = channel
        self._log = log
        self._outside = outside = Outside()
        self._now = outside.clock.now
        outside.engine_memory.most = config.server.max_engine_memory
        self._observers = Observers(observer for _, observer in create_installed(config, registry, "observer"))
        self._protocols: list[Protocol] = [each for _, each in create_installed(config, registry, "protocol")]
        self._drivers = build_drivers(config, registry, {}, outside)
        self._fleet = build_fleet(config, clock=outside.clock.epoch, drivers=self._drivers)
        self._reader = BoardReader(self._now)
        self._outcomes = OutcomeSender(channel.send, lambda load: self._names.get(id(load)))
        self._fleet.reports, self._fleet.refresh = self._outcomes, self._reader.refresh
        queue_changed = partial(notify, self._observers.callbacks("queue_changed"))
        self.queues = OwnerQueues(channel, lambda: self.config.scheduling.priorities, queue_changed)
        self.exporter = OwnerExporter(channel.send, lambda: channel.waiting)
        shares = create(config, registry, "scheduler", config.scheduling.scheduler, "scheduling.scheduler").shares
        self._caches = FollowedCaches(
            lambda name: Client(self.relay.context.upstreams[name], self.config.checks.timeout)
        )
        parts = RelayParts(
            self._fleet,
            renew_upstreams(config, {}, config, outside, self._drivers),
            self._drivers,
            self.queues.by_backend,
            self._observers,
            self._protocols,
            self.exporter,
            outside,
            shares=shares,
            caches=self._caches,
        )
        self.relay = build_relay(config, registry, parts)
        self.relay.context.router.recall(first.memories)
        self._queue_changed = queue_changed
        room = self.relay.context.waiting_room
        room.others = RoomTurns(board, number, room.plan)
        self._access_log = AccessLog(json=config.telemetry.log_format == "json")
        self._callers = Callers(config, registry, outside.clock, self._observers, memory.limit_store(config, number))
        self._callers.share(memory.key_changes)
        self._callers.open(Path(first.folder), self.relay.context, self._send_usage)
        for protocol in self._protocols:
            protocol.open(Path(first.folder))
        self.admission = build_admission(config, self.relay, self._callers.keyring)
        self.loop_monitor = LoopMonitor()
        self._reporter = Reporter(
            self.relay, self.admission.body_memory, self.loop_monitor, self.queues.number, self._session_headers
        )
        self.pages = OwnerPages(channel.send)
        self.application = WorkerApplication(self._local_application(), self.pages)
        self._tasks = BackgroundTasks()
        self._events: RequestEvents | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._share_load(first.columns)
        channel.attach(self._handlers(), self.pages.lost)

    def start(self) -> None:
        """Begin to report, on the running event loop."""
        self._log.open(self._access_log)
        if self.config.telemetry.access_log:
            self.relay.endings.log_access = self._access_log.add
        self._tasks.start(self._callers.start())
        self._caches.follow(kv_events_of(self.config))
        self._beat()
        self._report_soon()

    def ready(self) -> None:
        """Tell the owner that connections are accepted."""
        self._channel.send(SaysReady(self.version))

    async def stop(self) -> None:
        """End requests, and send the last report."""
        self.relay.refuse_new()
        self.relay.close()
        self._caches.close()
        self.relay.endings.delivery.close()
        await self._access_log.close()
        await self._callers.close()
        self.exporter.flush()
        self._outcomes.flush()
        self._channel.send(SendsReport(self._reporter.report(live=False, past=False)))
        self._tasks.cancel()
        for timer in self._timers.values():
            timer.cancel()

    # --- from the owner

    def _handlers(self) -> Handlers:
        return {
            Granted: self.queues.granted,
            Refused: self.queues.refused,
            Positions: self.queues.put_positions,
            Recall: self.queues.recall,
            QueueChanged: self._look_for_slots,
            PageOut: self.pages.answer,
            Configure: self._configure,
            Views: self._follow,
            Judged: lambda _: self._outcomes.judged(),
            WantReport: self._report,
            WatchRequests: self._watch,
            Learned: self._learn,
            Drain: self._drain,
            Act: self._act,
            MoveRequest: self._move_soon,
        }

    def _configure(self, message: Configure) -> None:
        """Put another configuration in force, in one step of the event loop."""
        old, new = self.config, _share_of(pickle.loads(message.config), self._board.workers)
        drivers = build_drivers(new, self._registry, self._drivers, self._outside)
        context = self.relay.context
        renewed = needs_new_router(old, new, self._registry)
        view = CacheView(self._caches)
        router = build_router(new, self._registry, context.clock, view) if renewed else context.router
        upstreams = renew_upstreams(old, context.upstreams, new, self._outside, drivers)
        fleet = build_fleet(new, drivers=drivers)
        self._callers.configure(new)
        before = change_relay(self.relay, self.admission, new, drivers, upstreams, router)
        if renewed:
            self._caches.use(view)
        self._caches.follow(kv_events_of(new))
        self._fleet.become(fleet)
        self._drivers, self.config, self.version = drivers, new, message.version
        for name, upstream in before.items():
            if upstreams.get(name) is not upstream:
                upstream.pool.close()
        for name in [name for name in self.queues.by_backend if name not in upstreams]:
            del self.queues.by_backend[name]
        self._share_load(message.columns)
        self._access_log.json = new.telemetry.log_format == "json"
        configure_logs(new.telemetry, self._log, secret_values(new))
        self._channel.send(SaysReady(self.version))

    def _follow(self, message: Views) -> None:
        """Take over the state of backends."""
        for place in message.places:
            upstream = self.relay.context.upstreams.get(place.name)
            if upstream is None:
                continue
            if place.url is not None and upstream.pool.address != place.url:
                upstream.locate(place.url)
            self.queues.place(place, self._hosts[place.name])
        for view in message.views:
            if not self._outcomes.awaits_judgement(view.name):
                self._fleet.follow(view)
        self._queue_changed()

    def _look_for_slots(self, _: QueueChanged) -> None:
        """Let requests that wait look for a slot."""
        self._reader.expire()
        self._queue_changed()

    def _learn(self, message: Learned) -> None:
        """Tell the strategies what they have learned in another worker."""
        self.relay.context.router.hear(message.news)

    def _watch(self, message: WatchRequests) -> None:
        """Tell the owner of each event of a request, or no longer."""
        if message.wanted and self._events is None:
            self._events = RequestEvents(self._channel.send)
            self._observers.add(self._events)
        elif not message.wanted and self._events is not None:
            self._observers.remove(self._events)
            self._events = None

    def _drain(self, message: Drain) -> None:
        """Move or end streams of a backend or a replica."""
        drains = self.relay.drains
        if message.step == "retire" and message.error is not None:
            drains.retire(message.place, told(message.error))
        elif message.step == "cut_off":
            drains.cut_off(message.place, message.why)
        elif message.step == "begin":
            drains.begin(message.place)
        else:
            drains.vacate(message.place)

    def _act(self, message: Act) -> None:
        """Cancel a live request, or cut it off."""
        live = self._reporter.numbers.find(message.request)
        if live is None:
            return
        if message.act == "cancel":
            live.cancel(told(message.error) if message.error is not None else None)
        else:
            live.cut_off(message.why)

    def _report(self, message: WantReport) -> None:
        """Send the owner a report."""
        self._outcomes.flush()
        self._channel.send(SendsReport(self._reporter.report(live=True, past=message.past)))
        self._channel.send(Told(message.call, None))

    # --- inside

    def _move_soon(self, message: MoveRequest) -> None:
        self._tasks.start(self._move(message))

    async def _move(self, message: MoveRequest) -> None:
        live = self._reporter.numbers.find(message.request)
        try:
            if live is None:
                raise CannotContinue("The request has ended")
            moved = await live.move(message.destination, message.engine_request, message.cause)
        except RequestError as error:
            self._channel.send(Told(message.call, None, telling(error)))
        else:
            self._channel.send(Told(message.call, list(moved)))

    def _send_usage(self, rows: list[UsageRow], used: list[str]) -> None:
        self._channel.send(SendsUsage(rows, used))

    def _beat(self) -> None:
        self._board.beats[self.number] = self._now()
        self._outcomes.flush()
        if news := self.relay.context.router.news():
            self._channel.send(Learned(news))
        self._timers["beat"] = asyncio.get_running_loop().call_later(_BEAT_S, self._beat)

    def _report_soon(self) -> None:
        self._timers["report"] = asyncio.get_running_loop().call_later(_REPORT_S, self._send_report)

    def _send_report(self) -> None:
        self._report_soon()
        self._channel.send(SendsReport(self._reporter.report(live=False, past=False)))

    def _share_load(self, columns: dict[str, int]) -> None:
        self._hosts = {each.name: each.host for each in self._fleet.backends()}
        loads = []
        for name in self.relay.context.upstreams:
            load, column = self._fleet.load(name), columns.get(name)
            load.share(None if column is None else self._board.cells(column), self.number)
            loads.append(load)
        self._reader.watch(loads)
        self._names = {id(load): name for name, load in zip(self.relay.context.upstreams, loads, strict=True)}

    def _session_headers(self) -> Sequence[str]:
        sources = self.config.routing.session
        return [source.removeprefix("header:") for source in sources if source.startswith("header:")]

    def _aliases(self) -> Aliases:
        return self.relay.context.filters.aliases

    def _local_routes(self) -> list[BaseRoute]:
        return [
            *protocol_doors(self.admission, self._protocols),
            *EnginePages(self.admission).routes,
            UpstreamRoute(self.admission, self._aliases, lambda: self.config.scheduling.never_load_for),
        ]

    def _local_application(self) -> Starlette:
        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self.start()
            yield
            await self.stop()

        return build_application(self.admission, self._local_routes(), cors=self.config.server.cors, lifespan=lifespan)


class WorkerApplication:
    """The application of a worker: ``local`` relays requests to engines, ``pages`` of the owner are all else."""

    def __init__(self, local: Starlette, pages: OwnerPages) -> None:
        self._local = local
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        application = self._local if scope["type"] == "lifespan" or self._is_local(scope) else self._pages
        await application(scope, receive, send)

    def _is_local(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self._local.routes)


def _share_of(config: Config, workers: int) -> Config:
    """``config`` with the limits of memory that one of the ``workers`` has."""
    server = config.server
    body_memory = server.max_body_memory and max(server.max_body, server.max_body_memory // workers)
    engine_memory = server.max_engine_memory and max(1, server.max_engine_memory // workers)
    server = msgspec.structs.replace(server, max_body_memory=body_memory, max_engine_memory=engine_memory)
    return msgspec.structs.replace(config, server=server)
