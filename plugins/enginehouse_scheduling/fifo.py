"""The ``fifo`` scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import (
    Effects,
    HostFacts,
    LoadFailed,
    ModelNotFound,
    NotEnoughMemory,
    Phase,
    QueueFull,
    QueueTimeout,
    ReplicaGone,
    RequestError,
    Scheduler,
    SchedulingLimits,
    SwapDone,
    Swapper,
    Ticket,
    Waiting,
)
from enginehouse_scheduling.host_view import HostView
from enginehouse_scheduling.queue import Line, Queue, Waiter, turn
from enginehouse_scheduling.starvation import Claim, barrier, claims_of, stand_in_the_way
from enginehouse_scheduling.swaps import Swap


class Fifo(Scheduler):
    """First come, first served; higher priorities first; whoever wants the same model shares one load.

    Who waits stands in the line of one replica. While that replica is loaded the whole line waits for the load, and
    shares its fate; otherwise the line is examined anew whenever something changed that it may have waited for.
    """

    def prepare(self, effects: Effects, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """Take what it works with."""
        self._effects = effects
        self._limits = limits
        self._view = HostView(effects, swapper, host, limits)
        self._queue = Queue()
        self._closed: Exception | None = None

    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        """Take what it works with from now on, and look at everything anew: priorities may have changed as well."""
        self._limits = limits
        self._view.reconfigure(swapper, host, limits)
        self._queue.rank(self._priority)
        self._drain(self._effects.now())

    # --- events ----------------------------------------------------------------------------------------------------

    def on_request(self, ticket: Ticket) -> None:
        """Serve it now, or else let it wait: for the load in flight, for its turn, or for the swap that it starts."""
        replica, now = ticket.replica, self._effects.now()
        if refusal := self._closed or self._unknown(replica):
            self._effects.refuse(ticket, refusal)
            return
        waiter = self._queue.waiter(ticket, self._priority(ticket))
        claims = claims_of(self._queue, self._view, now)
        if self._queue.line(replica) is None and self._is_served_now(waiter, claims):
            self._grant(ticket)
        elif 0 < self._limits.max_queue <= len(self._queue):
            text = f"{len(self._queue)} requests wait already (scheduling.max_queue): try again later"
            self._effects.refuse(ticket, QueueFull(text))
        else:
            self._examine(self._queue.add(waiter), claims, now)

    def on_swap_done(self, done: SwapDone) -> None:
        """Let those who waited for this very swap share its fate; others may have waited for it to end."""
        swap = self._view.swaps.end(done.swap)
        if swap is None:
            return
        now, line = self._effects.now(), self._queue.line(swap.target)
        if done.error is None:
            self._view.usage.loaded(swap.target, now)
        if line is not None and not swap.cancelled:
            if done.error is not None:
                self._failed(line, swap, done.error)
            elif self._view.can_serve(swap.target):
                self._serve(line, (), now)
        self._drain(now)

    def on_serve_done(self, replica: str) -> None:
        """Give its place to the next in line; if that was the last one, others may have waited for it to end."""
        self._view.usage.end(replica)
        if not len(self._queue):
            return
        now, line = self._effects.now(), self._queue.line(replica)
        if not self._view.usage.in_flight(replica):
            self._drain(now)
        elif line is not None and self._view.can_serve(replica):
            self._serve(line, claims_of(self._queue, self._view, now), now)

    def on_cancel(self, ticket: Ticket) -> None:
        """Forget it. A load that nobody waits for any more is given up, and a claim is no longer in others' way."""
        waiter = self._queue.remove(ticket)
        if waiter is None:
            return
        now = self._effects.now()
        if self._give_up_load(ticket.replica) or waiter.age[0] <= self._view.overdue(now):
            self._drain(now)

    def on_unload(self, targets: Sequence[str], timeout: float) -> None:
        """Refuse who waits for them and have them stopped; nothing else waits for that."""
        known = [replica for replica in targets if self._effects.replica_state(replica) is not None]
        for replica in known:
            self._view.stopping.add(replica)
            if line := self._queue.line(replica):
                model = self._view.hosted(replica).model
                self._refuse_all(line, LoadFailed(f"Model '{model}' was unloaded while the request waited for it"))
            self._give_up_load(replica)
        if known:
            self._effects.stop(known, timeout)
            self._drain(self._effects.now())

    def on_stopped(self, replica: str) -> None:
        """Its line may have it started again, or goes back to routing; others may have waited for its place."""
        self._view.stopping.discard(replica)
        line = self._queue.line(replica)
        if line is not None and self._view.is_gone(replica) and self._view.swaps.loading(replica) is None:
            self._refuse_all(line, ReplicaGone(replica))
        self._drain(self._effects.now())

    def on_tick(self, now: float) -> None:
        """Refuse who waited for too long, and examine the others: residencies end, and patience too."""
        if timeout := self._limits.queue_timeout:
            for line in self._queue.lines():
                self._refuse_older(line, now - timeout)
        self._drain(now)

    def on_shutdown(self, error: Exception) -> None:
        """Refuse whoever waits, and whoever comes now."""
        self._closed = error
        for waiting in self.waiting():
            self._refuse(waiting.ticket, error)

    def waiting(self) -> Sequence[Waiting]:
        """Who waits for a load first, then everybody in turn."""
        overdue = self._view.overdue(self._effects.now())
        found = [(self._phase(waiter), waiter) for waiter in self._queue.waiters()]
        found.sort(key=lambda each: (each[0] is Phase.QUEUED, *turn(each[1], overdue)))
        return [
            Waiting(ticket=waiter.ticket, phase=phase, position=position)
            for position, (phase, waiter) in enumerate(found)
        ]

    def _priority(self, ticket: Ticket) -> int:
        return ticket.priority + self._view.hosted(ticket.replica).priority

    # --- decisions -------------------------------------------------------------------------------------------------

    def _drain(self, now: float) -> None:
        """Examine every line: grant what can be granted, then start what can be started, in turn."""
        if not len(self._queue):
            return
        claims = claims_of(self._queue, self._view, now)
        for line in self._queue.lines():
            if self._unknown(line.replica):
                self._refuse_all(line, ReplicaGone(line.replica))
                self._give_up_load(line.replica)
            elif self._view.can_serve(line.replica):
                self._serve(line, claims, now)
        running = self._view.running()
        for line in self._queue.lines_in_turn(self._view.overdue(now)):
            if self._view.is_loading_enough():
                return
            if self._start(line, running, claims, now):
                running = self._view.running()

    def _examine(self, line: Line, claims: Sequence[Claim], now: float) -> None:
        if self._view.can_serve(line.replica):
            self._serve(line, claims, now)
        else:
            self._start(line, self._view.running(), claims, now)

    def _is_served_now(self, waiter: Waiter, claims: Sequence[Claim]) -> bool:
        replica = waiter.ticket.replica
        return self._view.can_serve(replica) and self._view.has_room(replica) and waiter.age < barrier(claims, replica)

    def _serve(self, line: Line, claims: Sequence[Claim], now: float) -> None:
        """Grant as many of the line as there is room for and as no claim holds back; its replica can serve."""
        limit, overdue = barrier(claims, line.replica), self._view.overdue(now)
        while len(line) and line.oldest.age < limit and self._view.has_room(line.replica):
            waiter = next(waiter for waiter in line.in_turn(overdue) if waiter.age < limit)
            self._queue.remove(waiter.ticket)
            self._grant(waiter.ticket)

    def _start(self, line: Line, running: Sequence[str], claims: Sequence[Claim], now: float) -> bool:
        """Start the swap that the line waits for, unless something is in its way. Whether it was started."""
        target, view = line.replica, self._view
        if not view.can_start(target):
            return False
        try:
            evict = view.evictions(target, running, line.cramped)
            if view.obstacle(target, evict, now) is not None:
                return False
            if stand_in_the_way(claims, line.oldest.age, target, evict, running, view):
                return False
            view.start(target, evict, running, line.cramped)
        except RequestError as error:
            self._refuse_all(line, error)
            return False
        return True

    def _give_up_load(self, replica: str) -> bool:
        """Cancel the load of ``replica`` if nobody waits for it. Whether there was one."""
        swap = self._view.swaps.loading(replica)
        if swap is None or self._queue.line(replica) is not None:
            return False
        swap.cancelled = True
        self._effects.cancel_swap(swap.id)
        return True

    def _failed(self, line: Line, swap: Swap, error: Exception) -> None:
        """Refuse the line, unless its load may go better with more memory."""
        crowded = isinstance(error, NotEnoughMemory) and not swap.last_resort
        try:
            line.cramped = crowded and bool(self._view.dispensable(line.replica, self._view.running()))
        except RequestError as failure:
            line.cramped, error = False, failure
        if not line.cramped:
            self._refuse_all(line, error)

    # --- outcomes --------------------------------------------------------------------------------------------------

    def _grant(self, ticket: Ticket) -> None:
        if self._effects.grant(ticket):
            self._view.usage.begin(ticket.replica)

    def _refuse(self, ticket: Ticket, error: Exception) -> None:
        self._queue.remove(ticket)
        self._effects.refuse(ticket, error)

    def _refuse_all(self, line: Line, error: Exception) -> None:
        while len(line):
            self._refuse(line.oldest.ticket, error)

    def _refuse_older(self, line: Line, deadline: float) -> None:
        waited = f"after scheduling.queue_timeout ({self._limits.queue_timeout:g} s)"
        while len(line) and line.oldest.age[0] <= deadline:
            self._refuse(
                line.oldest.ticket, QueueTimeout(f"'{line.replica}' could still not take the request {waited}")
            )
        self._give_up_load(line.replica)

    def _unknown(self, replica: str) -> ModelNotFound | None:
        return ModelNotFound(replica) if self._effects.replica_state(replica) is None else None

    def _phase(self, waiter: Waiter) -> Phase:
        return Phase.LOADING if self._view.swaps.loading(waiter.ticket.replica) else Phase.QUEUED
