"""The queues of remote backends that limit how many requests they serve at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar
from weakref import WeakValueDictionary

from enginehouse.config.schema import BackendSettings, Config
from enginehouse.domain.errors import LoadFailed, QueueFull, ReplicaLost
from enginehouse.domain.replica import Health, ReplicaState
from enginehouse.domain.ticket import Ticket
from enginehouse.engines.host_context import HostContext
from enginehouse.interfaces.observers import Observer
from enginehouse.interfaces.schedulers import SchedulingLimits
from enginehouse.interfaces.swappers import HostedReplica, HostFacts, Swapper
from enginehouse.scheduling.flow_control import Backlog
from enginehouse.scheduling.host_engines import EngineControl
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.scheduling.request_queue import TicketHolder
from enginehouse.scheduling.scheduling_rules import host_limits

_log = logging.getLogger(__name__)


class RemoteQueues(Observer):
    """A queue for each remote backend that has a limit: ``backends.*.concurrency``, else what its engine reports.

    Requests in flight are counted from when the limit is known. Without a limit there is no queue.
    ``queues``: by backend; live. ``on_change`` is called when a queue was added or removed.
    """

    def __init__(self, context: HostContext, on_change: Callable[[], None]) -> None:
        self.queues: dict[str, RemoteQueue] = {}
        self._context = context
        self._on_change = on_change
        self._reported: dict[str, int] = {}
        self._removed: list[RemoteQueue] = []
        self._backlogs = WeakValueDictionary[str, Backlog]()
        context.observers.add(self)

    def open(self) -> None:
        """Make the queues of the configured limits."""
        for name in self._context.config.backends:
            self._update(name)

    def report(self, name: str, limit: int | None) -> None:
        """Use the limit that the engine of ``name`` reports, unless the configuration has one."""
        if name in self._context.config.backends and self._reported.get(name) != limit:
            self._reported.pop(name, None)
            if limit is not None and limit > 0:
                self._reported[name] = limit
            self._update(name)
            self._on_change()

    def reconfigure(self, context: HostContext) -> None:
        """Use another configuration. ``reject_removed`` must follow."""
        before, self._context = self._context.config.backends, context
        for name, old in before.items():
            if not _is_same_server(old, context.config.backends.get(name)):
                self._reported.pop(name, None)
                if (queue := self.queues.pop(name, None)) is not None:
                    self._removed.append(queue)
        self.open()

    def reject_removed(self) -> None:
        """Refuse the requests that wait for removed or replaced backends; the relay routes them again."""
        removed, self._removed = self._removed, []
        for queue in removed:
            queue.reject([queue.name], ReplicaLost)

    async def close(self, error: Exception) -> None:
        """Refuse every waiting request with ``error``."""
        await asyncio.gather(*(queue.close(error) for queue in self.queues.values()))

    def backend_health(self, backend: str, health: Health) -> None:
        """Refuse the requests that wait for an unhealthy backend; the relay routes them again."""
        queue = self.queues.get(backend)
        if health is Health.UNHEALTHY and queue is not None:
            queue.reject([backend], ReplicaLost)

    def _update(self, name: str) -> None:
        config = self._context.config
        if self._context.drivers[config.backends[name].driver].loading is not None:
            return  # its models wait in the queue of their host
        limit = config.backends[name].concurrency or self._reported.get(name, 0)
        queue = self.queues.get(name)
        self._context.fleet.load(name).slots = limit
        backlog = self._backlogs.setdefault(config.backends[name].host, Backlog())
        if queue is not None:
            queue.configure(config, limit, backlog)
            if not limit:  # everything that waited was granted
                del self.queues[name]
        elif limit:
            try:
                self.queues[name] = RemoteQueue(name, self._context, limit, backlog)
            except Exception:
                _log.exception("Backend '%s' has no queue: its scheduler could not be made", name)


class RemoteQueue(HostQueue):
    """The queue of one remote backend. All its models share one line, because they share the engine's limit.

    ``backlog``: of all such queues of its host, because ``scheduling.max_queue`` is one for each host.
    """

    launches: ClassVar[bool] = False

    def __init__(self, name: str, context: HostContext, limit: int, backlog: Backlog) -> None:
        engine, scheduler = _RunningElsewhere(name), context.make_scheduler()
        super().__init__(name, scheduler, engine, context.observers, context.scheduler, backlog)
        self.prepare(*self._rules(context.config, limit))

    def submit(self, ticket: Ticket, holder: TicketHolder) -> None:
        # the scheduler knows only its own line, and max_queue is one for all lines of the host
        if 0 < self._most_waiting <= self.backlog.waiting and self._granted[self.name] >= self._limit:
            error = QueueFull(f"{self.backlog.waiting} requests wait already (scheduling.max_queue): try again later")
            error.retry_after = self.backlog.retry_after()
            holder.refused(error)
            return
        super().submit(ticket, holder)

    def place(self, replica: str) -> tuple[str, int]:
        return self.name, self._priorities.get(replica.removesuffix(f"@{self.name}"), 0)

    def configure(self, config: Config, limit: int, backlog: Backlog) -> None:
        """Use another configuration, another ``limit``, 0 for none, and the ``backlog`` of another host."""
        if backlog is not self.backlog:
            self.backlog = self.backlog.moved(len(self._open), backlog)
        self.reconfigure(*self._rules(config, limit))

    def _rules(self, config: Config, limit: int) -> tuple[Swapper, HostFacts, SchedulingLimits]:
        """What its scheduler decides by."""
        limits = host_limits(config, config.backends[self.name].host)
        self._limit, self._most_waiting = limit, limits.max_queue
        self._priorities = config.scheduling.priorities
        served = HostedReplica(replica=self.name, model=self.name, concurrency=limit)
        return _NoSwaps(), HostFacts(name=self.name, replicas={self.name: served}), limits


class _RunningElsewhere(EngineControl):
    """An engine that the gateway neither starts nor stops. It is always ready."""

    def __init__(self, backend: str) -> None:
        self._states = {backend: ReplicaState.READY}

    def states(self) -> Mapping[str, ReplicaState]:
        return self._states

    async def start(self, replica: str) -> None:
        raise LoadFailed(f"The gateway does not launch '{replica}'")

    async def stop(self, replica: str, timeout: float | None) -> None:
        pass


class _NoSwaps(Swapper):
    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return ()


def _is_same_server(old: BackendSettings, new: BackendSettings | None) -> bool:
    return new is not None and (old.url, old.driver) == (new.url, new.driver)
