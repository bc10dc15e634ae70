"""One host's run loop between its scheduler, its engines and the requests that wait."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

import msgspec

from enginehouse.aio.clock import loop_clock
from enginehouse.domain.errors import EnginehouseError, PluginError, QueueFull, QueueTimeout, RequestError
from enginehouse.domain.foreign import describe
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import Phase, SwapDone, SwapId, Ticket
from enginehouse.interfaces.schedulers import Scheduler, SchedulingLimits, Waiting
from enginehouse.interfaces.swappers import HostFacts, Swapper
from enginehouse.scheduling.flow_control import Backlog, expected_wait, missed, unfit
from enginehouse.scheduling.host_engines import EngineControl, IdleReplicas, SwapTasks
from enginehouse.scheduling.request_queue import RequestQueue, TicketHolder
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.telemetry.plugin_failures import log_plugin_failure, plugin_failed
from enginehouse.telemetry.plugin_times import SampledCall

_UNNAMED = PluginId("scheduler", "")
_TICK_S = 0.25
_RESOLUTION_S = 0.001
"""An event loop may call that much too early."""
_FORGOTTEN_AFTER_S = 1.0
"""A scheduler refuses a request that waits for ``queue_timeout``. This much later, the queue does."""
_NOTICES_WITHIN_S: Final = 0.1
"""An engine finds out at its next token that its clients are gone. A llama-server that gets the stop signal while it
computes may wait for a lock that the interrupted thread holds, for ever."""
_NOTICE_S = 2.0
"""The gateway notices an exit this much later than the broken connections: the engine first frees its memory."""

_EARLY = {ReplicaState.DOWNLOADING: Phase.DOWNLOADING, ReplicaState.PLACING: Phase.PLACING}
"""What a load does before its engine starts."""


class _UnansweredTicket(NamedTuple):
    """A ticket without an answer. ``last_swap``: the swap that was started last before it came, or 0."""

    ticket: Ticket
    holder: TicketHolder
    last_swap: SwapId


class _EngineEnds:
    """The ends of one replica's engine. ``exits``: how often it has exited by itself, and ``exit`` is the next time.

    ``stop``: is stopping it. ``retirement``: drains it, until ``drained``, and then stops it. ``is_unloaded``: by an
    operator, until it is loaded again. ``is_removed``: the host had the replica no longer, but requests in flight.
    """

    def __init__(self) -> None:
        self.exits = 0
        self.exit: asyncio.Future[None] | None = None
        self.stop: asyncio.Task[None] | None = None
        self.retirement: asyncio.Task[None] | None = None
        self.drained = asyncio.Event()
        self.is_unloaded = self.is_removed = False


class HostQueue(RequestQueue):
    """Runs one host's scheduler: brings events to it and carries out its decisions. Implements ``Effects``.

    The scheduler handles one event at a time. An event that its own decision causes is queued behind the current one.
    Needs a running event loop, whose clock is that of tickets.
    """

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        engines: EngineControl,
        observers: Observers,
        plugin: PluginId = _UNNAMED,
        backlog: Backlog | None = None,
    ) -> None:
        self.backlog = backlog or Backlog()
        self.name = name
        self.now = loop_clock(asyncio.get_running_loop())
        self._scheduler = scheduler
        self._plugin = plugin
        self.sampled = SampledCall(plugin, scheduler.on_tick)
        self._queue_timeout = self._shed_after = 0.0
        self._engines = engines
        self.replica_state: Callable[[str], ReplicaState | None] = engines.state_of
        self.running: Callable[[], Mapping[str, ReplicaState]] = engines.running
        self._on_swap_started = observers.callbacks("swap_started")
        self._on_swap_done = observers.callbacks("swap_done")
        self._on_queue_changed = observers.callbacks("queue_changed")
        self._open: dict[str, _UnansweredTicket] = {}
        self._granted: Counter[str] = Counter()
        self._uses = count(1)
        self._last_use: Counter[str] = Counter()
        self._events: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._handling = False
        self._swaps = SwapTasks(engines, self._swap_ended)
        self.cancel_swap = self._swaps.cancel
        self._facts: tuple[object, ...] = ()  # of the event that is handled now
        self._ends: defaultdict[str, _EngineEnds] = defaultdict(_EngineEnds)
        self._idle = IdleReplicas()
        self._doubts: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def prepare(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """Prepare the scheduler, once, before any event. Raises ``PluginError`` if it fails."""
        self._queue_timeout, self._shed_after = limits.queue_timeout, limits.shed_after
        try:
            self._scheduler.prepare(self, swapper, host, limits)
        except EnginehouseError:
            raise
        except (Exception, SystemExit) as error:
            problem = f"the {self._plugin.kind} '{self._plugin.type}' cannot be prepared: {describe(error)}"
            raise PluginError(problem, plugin=self._plugin.plugin) from error

    # --- events

    def submit(self, ticket: Ticket, holder: TicketHolder) -> None:
        self._open[ticket.id] = _UnansweredTicket(ticket, holder, self._swaps.last)
        self.backlog.add()
        self._handle(self._scheduler.on_request, ticket)
        if (self._shed_after or ticket.deadline < math.inf) and ticket.id in self._open and not self._handling:
            self._control_flow(ticket)

    def cancel(self, ticket: Ticket) -> None:
        if self._take(ticket) is not None:
            self._handle(self._scheduler.on_cancel, ticket)

    def in_flight(self, replica: str) -> int:
        """The number of granted requests of ``replica`` that have not ended, those of other workers included."""
        return self._granted[replica]

    def served(self, replica: str, caller: str | None = None, keep_alive: float | None = None) -> None:
        self._granted[replica] -= 1
        self._last_use[replica] = next(self._uses)
        self._idle.used(replica, self.now(), caller, keep_alive)
        self._handle(self._scheduler.on_serve_done, replica)
        if not self._granted[replica]:
            ends = self._ends[replica]
            ends.drained.set()  # the scheduler knows already
            if ends.is_removed and self.replica_state(replica) is None:
                self.forget(replica)

    def due(self, ttls: Mapping[str, float]) -> Sequence[str]:
        """The replicas to put to sleep or to stop now, as ``IdleReplicas.due``."""
        return self._idle.due(self._engines.states(), self._granted, ttls, self.now())

    def connection_lost(self, replica: str, generation: int) -> None:
        doubt = asyncio.ensure_future(self._settle(replica, generation))
        self._doubts[doubt] = None
        doubt.add_done_callback(self._doubts.pop)

    def exited(self, replica: str) -> None:
        """Report that a ready engine exited, or was put to sleep, without an order of the scheduler."""
        ends = self._ends[replica]
        ends.exits += 1
        ends.retirement = None  # it stops no engine that is started later
        if ends.exit is not None:
            ends.exit.set_result(None)
            ends.exit = None
        self._stopped(replica)

    def found_unloaded(self, replica: str, generation: int) -> None:
        if generation == self.generation(replica) and self.replica_state(replica) is ReplicaState.READY:
            self._engines.unloaded(replica)

    def forget(self, replica: str) -> None:
        """Forget a replica that the host has no longer, as soon as none of its requests is in flight."""
        if self._granted[replica]:
            self._ends[replica].is_removed = True
        else:
            for known in (self._granted, self._last_use, self._ends, self._swaps.fastest):
                known.pop(replica, None)

    def generation(self, replica: str) -> int:
        return self._ends[replica].exits

    async def has_exited(self, replica: str, generation: int) -> bool:
        ends = self._ends[replica]
        if ends.exits == generation and not ends.is_unloaded and self.replica_state(replica) is ReplicaState.READY:
            ends.exit = ends.exit or asyncio.get_running_loop().create_future()
            await asyncio.wait({ends.exit}, timeout=_NOTICE_S)
        return ends.exits != generation

    async def unload(self, replicas: Sequence[str], timeout: float) -> None:
        """Stop engines and refuse the requests that wait for them. Returns when the engines have stopped.

        Requests in flight are cut off.
        """
        self.note_unload(replicas)
        self._handle(self._scheduler.on_unload, replicas, timeout)
        stops = (self._ends[replica].stop for replica in replicas)
        await asyncio.gather(*(asyncio.shield(stop) for stop in stops if stop is not None))

    def least_recently_used(self) -> Sequence[str]:
        """The running replicas, as a scheduler gives them to its swapper: the least recently used first."""
        return sorted(self.running(), key=self._last_use.__getitem__)

    def note_unload(self, replicas: Collection[str]) -> None:
        """Note that an operator unloads ``replicas``, until they are loaded again."""
        for replica in replicas:
            self._ends[replica].is_unloaded = True

    def is_unloaded(self, replica: str) -> bool:
        return self._ends[replica].is_unloaded

    def retire(self, replica: str, within: float) -> asyncio.Task[None]:
        """Drain an engine for at most ``within`` seconds, then stop it. The task ends when it has stopped.

        ``EngineControl`` must no longer show the replica as ready, or it gets new requests.
        """
        ends = self._ends[replica]
        if ends.retirement is None:
            ends.retirement = asyncio.ensure_future(self._retire(replica, within))
        return ends.retirement

    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """Use another configuration. Waiting requests, served requests and swaps in flight stay as they are."""
        self._queue_timeout, self._shed_after = limits.queue_timeout, limits.shed_after
        self._handle(self._scheduler.reconfigure, swapper, host, limits)

    def reject(self, replicas: Collection[str], error: Callable[[str], RequestError]) -> None:
        """Refuse the requests that wait for ``replicas``. The scheduler sees their tickets cancelled."""
        for ticket in self._tickets():
            if ticket.replica in replicas:
                self._withdraw(ticket, error(ticket.replica))

    def waiting(self) -> Sequence[Waiting]:
        """The waiting requests, the next one first; none if the scheduler fails to list them."""
        if not self._open:
            return ()
        try:
            waiting = self._scheduler.waiting()
        except BaseException as error:
            log_plugin_failure(self._plugin, f"failed on host '{self.name}'", error)
            return ()
        early = {name: _EARLY[state] for name, state in self._engines.states().items() if state in _EARLY}
        return [_early(each, early.get(each.ticket.replica)) for each in waiting] if early else waiting

    async def close(self, error: Exception) -> None:
        """Refuse the waiting requests and cancel every load."""
        self._handle(self._scheduler.on_shutdown, error)
        for ticket in self._tickets():  # those that the scheduler did not refuse
            self.refuse(ticket, error)
        if self._timer is not None:
            self._timer.cancel()
        ends = self._ends.values()
        retirements = [each.retirement for each in ends if each.retirement is not None]
        unfinished = [*self._swaps, *self._doubts, *retirements]
        for task in unfinished:
            task.cancel()
        stops = (each.stop for each in ends if each.stop is not None)  # these end by themselves
        await asyncio.gather(*unfinished, *stops, return_exceptions=True)

    # --- effects

    def start_swap(self, target: str, evict: Sequence[str]) -> SwapId:
        self._ends[target].is_unloaded = False
        self._last_use[target] = next(self._uses)
        stopping = ReplicaState.STOPPING  # an engine that is stopping already is not evicted by this swap
        evicted = tuple([replica for replica in evict if self.replica_state(replica) is not stopping]) if evict else ()
        notify(self._on_swap_started, target, evicted)
        return self._swaps.start(target, tuple(evict))

    def stop(self, replicas: Sequence[str], timeout: float | None) -> None:
        for replica in replicas:
            if self._ends[replica].stop is None:
                self._ends[replica].stop = asyncio.ensure_future(self._stop(replica, timeout))

    def grant(self, ticket: Ticket) -> bool:
        taken = self._take(ticket)
        if taken is None:
            return False
        if self.backlog.waiting:  # only grants while others wait show how fast the host is
            self.backlog.granted(self.now())
        self._granted[ticket.replica] += 1  # first, because the request may end within the call
        self._last_use[ticket.replica] = next(self._uses)
        granted = taken.holder.granted()
        if not granted:
            self._granted[ticket.replica] -= 1
        return granted

    def refuse(self, ticket: Ticket, error: Exception) -> None:
        if isinstance(error, QueueFull):
            error.retry_after = self.backlog.retry_after()
        if (taken := self._take(ticket)) is not None:
            done = self._facts[0] if self._facts else None
            failed = done if isinstance(done, SwapDone) and done.error is not None else None
            joined = failed is not None and failed.target == ticket.replica and failed.swap <= taken.last_swap
            taken.holder.refused(error, joined)

    def vacate(self, replicas: Sequence[str]) -> None:
        for replica in replicas:
            if self._granted[replica]:
                self._engines.vacate(replica)

    async def _stop(self, replica: str, timeout: float | None) -> None:
        if self._granted[replica]:
            self._engines.stopping(replica)
            await asyncio.sleep(_NOTICES_WITHIN_S)
        try:
            await self._engines.stop(replica, timeout)
        finally:
            self._ends[replica].stop = self._ends[replica].retirement = None
            self._stopped(replica)

    async def _retire(self, replica: str, within: float) -> None:
        ends = self._ends[replica]
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._drain(replica, ends.drained), within)
        if ends.retirement is asyncio.current_task():  # else it has stopped, and another engine may run in its place
            self.stop([replica], None)
        if ends.stop is not None:
            await asyncio.shield(ends.stop)  # no variable: a failure would refer to the task that raised it

    async def _drain(self, replica: str, drained: asyncio.Event) -> None:
        await self._engines.freed(replica)
        if self._granted[replica]:
            drained.clear()
            await drained.wait()

    # --- tickets without an answer

    def _tickets(self) -> Sequence[Ticket]:
        return [each.ticket for each in self._open.values()]

    def _take(self, ticket: Ticket) -> _UnansweredTicket | None:
        """Take a ticket that gets its answer now; ``None`` if it has one already."""
        taken = self._open.pop(ticket.id, None)
        if taken is not None:
            self.backlog.take()
        return taken

    # --- the run loop

    def _handle(self, event: Callable[..., None], *facts: object) -> None:
        self._events.append((event, facts))
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                event, self._facts = self._events.popleft()
                try:
                    event(*self._facts)
                except BaseException as error:
                    self._failed(error)
        finally:
            self._handling, self._facts = False, ()
        notify(self._on_queue_changed)
        if self._timer is None and self._open:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S + _RESOLUTION_S, self._tick)

    def _failed(self, error: BaseException) -> None:
        """Refuse the request for which the scheduler failed just now; log any other failure."""
        ticket = self._facts[0] if self._facts else None
        if isinstance(ticket, Ticket) and ticket.id in self._open:
            self.refuse(ticket, error if isinstance(error, RequestError) else plugin_failed(self._plugin, error))
        else:
            log_plugin_failure(self._plugin, f"failed on host '{self.name}'", error)

    def _tick_by(self, when: float) -> None:
        """Call ``_tick`` at this time, unless it is called earlier."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when + _RESOLUTION_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._open:
            return
        now = self.now()
        self._handle(self.sampled.call, now)
        self._refuse_missed(self._tickets())
        if self._queue_timeout:
            self._refuse_forgotten(now - self._queue_timeout - _FORGOTTEN_AFTER_S)
        if self._open:
            self._tick_by(min(ticket.deadline for ticket in self._tickets()))

    def _control_flow(self, ticket: Ticket) -> None:
        """Refuse ``ticket``, which waits for a slot, or another one, if that would take too long."""
        self._tick_by(ticket.deadline)
        self._refuse_missed([ticket])
        longest = expected_wait([self.backlog], self.backlog.waiting)
        if longest <= min(ticket.deadline - self.now(), self._shed_after or math.inf):  # of all that wait
            return
        waiting = [each.ticket for each in self.waiting() if each.phase is Phase.QUEUED]
        if ticket in waiting:
            refusal = unfit(ticket, waiting, [self.backlog], self._shed_after, self.now())
            if refusal is not None:
                self._withdraw(*refusal)

    def _refuse_missed(self, tickets: Collection[Ticket]) -> None:
        for ticket, error in missed(tickets, self.now(), self._seconds_left):
            self._withdraw(ticket, error)

    def _seconds_left(self, replica: str) -> float:
        """Until ``replica`` is ready, as far as that is known."""
        return 0.0 if self.replica_state(replica) is ReplicaState.READY else self._swaps.seconds_left(replica)

    def _withdraw(self, ticket: Ticket, error: RequestError) -> None:
        """Refuse a waiting request without asking the scheduler, which sees its ticket cancelled."""
        if (taken := self._take(ticket)) is not None:
            self._handle(self._scheduler.on_cancel, ticket)
            taken.holder.refused(error)

    def _refuse_forgotten(self, before: float) -> None:
        """Refuse the tickets from ``before`` this time, which the scheduler has kept past ``queue_timeout``."""
        for ticket in [ticket for ticket in self._tickets() if ticket.arrived < before]:
            text = f"'{ticket.replica}' was not available within scheduling.queue_timeout ({self._queue_timeout:g} s)"
            log_plugin_failure(self._plugin, f"kept a request past scheduling.queue_timeout on host '{self.name}'")
            self._withdraw(ticket, QueueTimeout(text))

    async def _settle(self, replica: str, generation: int) -> None:
        await self.has_exited(replica, generation)
        self.served(replica)

    def _swap_ended(self, done: SwapDone) -> None:
        notify(self._on_swap_done, done)
        self._handle(self._scheduler.on_swap_done, done)

    def _stopped(self, replica: str) -> None:
        self._handle(self._scheduler.on_stopped, replica)


def _early(waiting: Waiting, phase: Phase | None) -> Waiting:
    """``waiting`` for a replica whose load is in an early ``phase``, if it is."""
    loads = waiting.phase is Phase.LOADING and phase is not None
    return msgspec.structs.replace(waiting, phase=phase) if loads else waiting
