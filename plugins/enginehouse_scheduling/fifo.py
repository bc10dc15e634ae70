"""The scheduler ``fifo``: its decisions, on the bookkeeping of the kit."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import ReplicaState, RequestError, Scheduler, Swapper
from enginehouse.errors import LoadFailed, ModelNotFound, NotEnoughMemory, QueueFull, QueueTimeout, ReplicaLost
from enginehouse.tickets import (
    Effects,
    HostFacts,
    Phase,
    ReplicaLine,
    SchedulingLimits,
    SwapDone,
    Ticket,
    TicketAge,
    TicketQueue,
    Waiting,
    WaitingTicket,
)
from enginehouse_kit.schedulers import SchedulingState, StarvationClaims, SwapInFlight, SwapObstacle


class Fifo(Scheduler):
    """First come, first served; higher priorities first; requests for the same model share one load.

    Waiting tickets stand in the line of their replica. While the replica is loaded, the whole line waits for that load
    and shares its outcome. Otherwise each event that may have unblocked a line examines it again.
    """

    def prepare(self, effects: Effects, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        self._effects = effects
        self._limits = limits
        self._state = SchedulingState(effects, swapper, host, limits)
        self._queue = TicketQueue()
        self._closed: Exception | None = None

    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        self._limits = limits
        self._state.reconfigure(swapper, host, limits)
        self._queue.rank(self._priority)
        self._drain(self._effects.now())

    # --- events

    def on_request(self, ticket: Ticket) -> None:
        replica, now = ticket.replica, self._effects.now()
        shown = self._effects.replica_state(replica)
        if self._closed is not None or shown is None:
            self._effects.refuse(ticket, self._closed or ModelNotFound(replica))
            return
        waiting = self._queue.place(ticket, self._priority(ticket))
        claims = StarvationClaims(self._queue, self._state, now)
        can_serve = shown is ReplicaState.READY and self._state.is_at_rest(replica)
        if can_serve and self._is_next(waiting, claims.barrier(replica)) and self._state.has_room(replica):
            self._grant(ticket)
        elif 0 < self._limits.max_queue <= len(self._queue.waiting):
            text = f"{len(self._queue.waiting)} requests wait already (scheduling.max_queue): try again later"
            self._effects.refuse(ticket, QueueFull(text))
        elif can_serve:
            self._serve(self._queue.add(waiting), claims.barrier(replica), now)
        else:
            self._start(self._queue.add(waiting), self._state.running(), claims, now)

    def on_swap_done(self, done: SwapDone) -> None:
        swap = self._state.swaps.remove(done.swap)
        if swap is None:
            return
        now, line = self._effects.now(), self._queue.line(swap.target)
        if done.error is None:
            self._state.usage.loaded(swap.target, now)
        if line is not None and not swap.cancelled:
            if done.error is not None:
                self._failed(line, swap, done.error)
            elif self._state.can_serve(swap.target):
                self._serve(line, StarvationClaims.NO_BARRIER, now)
        self._drain(now)

    def on_serve_done(self, replica: str) -> None:
        self._state.usage.end(replica)
        if not self._queue.waiting:
            return
        now, line = self._effects.now(), self._queue.line(replica)
        if not self._state.usage.in_flight(replica):
            self._drain(now)
        elif line is not None and self._state.can_serve(replica):
            self._serve(line, StarvationClaims(self._queue, self._state, now).barrier(replica), now)

    def on_cancel(self, ticket: Ticket) -> None:
        waiting = self._queue.remove(ticket)
        if waiting is None:
            return
        now = self._effects.now()
        had_claim = waiting.age[0] <= self._state.overdue(now)
        if self._leave_load(ticket.replica) or had_claim:
            self._drain(now)

    def on_unload(self, targets: Sequence[str], timeout: float) -> None:
        known = [replica for replica in targets if self._effects.replica_state(replica) is not None]
        for replica in known:
            self._state.stopping.add(replica)
            if line := self._queue.line(replica):
                model = self._state.hosted(replica).model
                self._refuse_all(line, LoadFailed(f"Model '{model}' was unloaded while the request waited for it"))
            self._cancel_load(replica)
        if known:
            self._effects.stop(known, timeout)
            self._drain(self._effects.now())

    def on_stopped(self, replica: str) -> None:
        self._state.stopping.discard(replica)
        line = self._queue.line(replica)
        if line is not None and self._state.is_lost(replica) and self._state.swaps.loading(replica) is None:
            self._refuse_all(line, ReplicaLost(replica))
        self._drain(self._effects.now())

    def on_tick(self, now: float) -> None:
        if timeout := self._limits.queue_timeout:
            for line in self._queue.lines():
                if line.oldest.age[0] <= now - timeout:
                    self._refuse_older(line, now - timeout)
        self._drain(now)

    def on_shutdown(self, error: Exception) -> None:
        self._closed = error
        for waiting in self.waiting():
            self._refuse(waiting.ticket, error)

    def waiting(self) -> Sequence[Waiting]:
        """The tickets whose replica is being loaded, then the others, each in the order of service."""
        if not self._queue.waiting:
            return []
        overdue = self._state.overdue(self._effects.now())
        tickets: dict[Phase, list[WaitingTicket]] = {Phase.LOADING: [], Phase.QUEUED: []}
        for line in self._queue.lines():
            phase = Phase.LOADING if self._state.swaps.loading(line.replica) else Phase.QUEUED
            tickets[phase] += line.in_turn(overdue)
        found = [(phase, each.ticket) for phase in tickets for each in _in_turn(tickets[phase], overdue)]
        return [Waiting(ticket=each, phase=phase, position=position) for position, (phase, each) in enumerate(found)]

    def _priority(self, ticket: Ticket) -> int:
        return ticket.priority + self._state.hosted(ticket.replica).priority

    # --- decisions

    def _drain(self, now: float) -> None:
        """Examine every line: first grant where the replica can serve, then start swaps, in the order of service.

        Lines for whose replicas there was no place come last.
        """
        if not self._queue.waiting:
            return
        claims = StarvationClaims(self._queue, self._state, now)
        for line in self._queue.lines():
            shown = self._effects.replica_state(line.replica)
            if shown is None:
                self._refuse_all(line, ReplicaLost(line.replica))
                self._cancel_load(line.replica)
            elif shown is ReplicaState.READY and self._state.is_at_rest(line.replica):
                self._serve(line, claims.barrier(line.replica), now)
        if not self._may_load():
            return
        running = self._state.running()
        in_turn = self._queue.lines_in_turn(self._state.overdue(now))
        for line in sorted(in_turn, key=lambda each: each.claims_from > now):
            if self._start(line, running, claims, now):
                if not self._may_load():
                    return
                running = self._state.running()

    def _may_load(self) -> bool:
        """Whether the host may load one replica more, or another one in place of a load that gives way."""
        return not self._state.is_loading_enough() or bool(self._giving_way())

    def _is_next(self, waiting: WaitingTicket, barrier: TicketAge) -> bool:
        """Whether a ticket that comes would not wait behind another one."""
        return self._queue.line(waiting.ticket.replica) is None and waiting.age < barrier

    def _serve(self, line: ReplicaLine, barrier: TicketAge, now: float) -> None:
        """Grant tickets older than ``barrier``, as many as ``concurrency`` allows. The replica can serve."""
        overdue = self._state.overdue(now)
        while (waiting := line.next_in_turn(overdue, barrier)) is not None and self._state.has_room(line.replica):
            self._queue.remove(waiting.ticket)
            self._grant(waiting.ticket)

    def _start(self, line: ReplicaLine, running: Sequence[str], claims: StarvationClaims, now: float) -> bool:
        """Start the swap that the line waits for, if nothing prevents it. Returns whether it was started."""
        target, state = line.replica, self._state
        if not state.can_start(target):
            self._take_back(target)
            return False
        try:
            evict = state.evictions(target, running, line.cramped)
            obstacle = state.obstacle(target, evict, now)
            if obstacle in (SwapObstacle.SWAP, SwapObstacle.LOADS) and self._make_way(target, evict):
                obstacle = state.obstacle(target, evict, now)
            if obstacle is not None:
                if obstacle is SwapObstacle.BUSY:
                    self._effects.vacate(evict)
                return False
            if claims.block(line.oldest.age, target, evict, running):
                return False
            state.start(target, evict, running, line.cramped)
        except RequestError as error:
            self._refuse_all(line, error)
            return False
        return True

    def _leave_load(self, replica: str) -> bool:
        """Note that a ticket for ``replica`` left. Returns whether the load may be cancelled for another one.

        A client that gives up often comes back, so by default the load goes on until another one needs its place.
        """
        if self._state.swaps.loading(replica) is None or self._queue.line(replica) is not None:
            return False
        if self._limits.cancel_loads == "always":
            self._cancel_load(replica)
        return self._limits.cancel_loads != "never"

    def _take_back(self, replica: str) -> None:
        """Cancel the load that evicts ``replica``, if it gives way."""
        for swap in self._giving_way():
            if replica in swap.evict:
                self._call_off(swap)

    def _make_way(self, target: str, evict: Sequence[str]) -> bool:
        """Cancel the loads that give way and that keep ``target`` from being loaded. Whether there were any."""
        giving_way = self._giving_way()
        in_the_way = [swap for swap in giving_way if swap.collides_with(target, evict)]
        if not in_the_way and self._state.is_loading_enough():
            in_the_way = giving_way[:1]
        for swap in in_the_way:
            self._call_off(swap)
        return bool(in_the_way)

    def _giving_way(self) -> list[SwapInFlight]:
        """The loads that others may cancel: nobody waits for them any more, or there is no place for them yet."""
        may, state = self._limits.cancel_loads != "never", self._state
        loads = state.swaps.loads()
        return [swap for swap in loads if (may and self._queue.line(swap.target) is None) or state.is_unplaced(swap)]

    def _call_off(self, swap: SwapInFlight) -> None:
        """Cancel a load that gives way. Requests that wait for it go on waiting, and hold up nobody for a while."""
        if (line := self._queue.line(swap.target)) is not None:
            line.claims_from = self._effects.now() + self._limits.max_wait
        self._cancel_load(swap.target)

    def _cancel_load(self, replica: str) -> None:
        """Cancel the load of ``replica``, if it is being loaded."""
        if (swap := self._state.swaps.loading(replica)) is not None:
            swap.cancelled = True
            self._effects.cancel_swap(swap.id)

    def _failed(self, line: ReplicaLine, swap: SwapInFlight, error: Exception) -> None:
        """Refuse the line, unless another load with more memory may succeed."""
        may_retry = isinstance(error, NotEnoughMemory) and not swap.last_resort
        try:
            line.cramped = may_retry and bool(self._state.dispensable(line.replica, self._state.running()))
        except RequestError as failure:
            line.cramped, error = False, failure
        if not line.cramped:
            self._refuse_all(line, error)

    # --- outcomes

    def _grant(self, ticket: Ticket) -> None:
        if self._effects.grant(ticket):
            self._state.usage.begin(ticket.replica)

    def _refuse(self, ticket: Ticket, error: Exception) -> None:
        self._queue.remove(ticket)
        self._effects.refuse(ticket, error)

    def _refuse_all(self, line: ReplicaLine, error: Exception) -> None:
        while len(line):
            self._refuse(line.oldest.ticket, error)

    def _refuse_older(self, line: ReplicaLine, deadline: float) -> None:
        waited = f"within scheduling.queue_timeout ({self._limits.queue_timeout:g} s)"
        while len(line) and line.oldest.age[0] <= deadline:
            self._refuse(line.oldest.ticket, QueueTimeout(f"'{line.replica}' could not take the request {waited}"))
        self._leave_load(line.replica)


def _in_turn(tickets: Sequence[WaitingTicket], overdue: float) -> Sequence[WaitingTicket]:
    return sorted(tickets, key=lambda waiting: waiting.turn(overdue))
