from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from enginehouse import Scheduler, Swapper
from enginehouse.errors import QueueFull
from enginehouse.tickets import HostFacts, SchedulingLimits, SwapDone, Ticket, Waiting
from enginehouse_kit.schedulers import ReplicaUsage
from enginehouse_kit.testing import FakeEffects, check_scheduler, create
from enginehouse_scheduling.fifo import Fifo


@pytest.mark.parametrize("type", ["fifo", "fair"])
def test_it_keeps_the_rules_of_a_scheduler(type: str) -> None:
    check_scheduler(lambda: create("scheduler", type))


class Forgets(Fifo):
    def on_cancel(self, ticket: Ticket) -> None: ...


class Answers(Fifo):
    def on_cancel(self, ticket: Ticket) -> None:
        super().on_cancel(ticket)
        self._effects.refuse(ticket, QueueFull("gone"))


class Grants(Fifo):
    def on_request(self, ticket: Ticket) -> None:
        self._effects.grant(ticket)


class CountsFailedGrants(Fifo):
    def _grant(self, ticket: Ticket) -> None:
        super()._grant(ticket)
        if self._state.usage.in_flight(ticket.replica) == 0:
            self._state.usage.begin(ticket.replica)


class EvictsTheBusy(Fifo):
    def _grant(self, ticket: Ticket) -> None:
        self._effects.grant(ticket)


class BelievesAnybody(Fifo):
    def on_swap_done(self, done: SwapDone) -> None:
        super().on_swap_done(done)
        if line := self._queue.line(done.target):
            self._refuse_all(line, QueueFull("no"))


class HidesOne(Fifo):
    def waiting(self) -> Sequence[Waiting]:
        return super().waiting()[1:]


class StaysOpen(Fifo):
    def on_shutdown(self, error: Exception) -> None: ...


class Keeps(Fifo):
    def on_stopped(self, replica: str) -> None:
        self._state.stopping.discard(replica)
        self._drain(self._effects.now())


class BeginsAnew(Fifo):
    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        self.prepare(self._effects, swapper, host, limits)


class ForgetsWhatIsServed(Fifo):
    def reconfigure(self, swapper: Swapper, host: HostFacts, limits: SchedulingLimits) -> None:
        self._state.usage = ReplicaUsage()
        super().reconfigure(swapper, host, limits)


class IgnoresPriorities(Fifo):
    def _priority(self, ticket: Ticket) -> int:
        return 0


class IgnoresUnloads(Fifo):
    def on_unload(self, targets: Sequence[str], timeout: float) -> None: ...


class RefusesOnly(Fifo):
    """Refuses the requests that wait for an unloaded replica and leaves it running."""

    def on_unload(self, targets: Sequence[str], timeout: float) -> None:
        for replica in targets:
            if line := self._queue.line(replica):
                self._refuse_all(line, QueueFull("unloaded"))


_CALLS = count()


class Capricious(Fifo):
    def on_request(self, ticket: Ticket) -> None:
        if next(_CALLS) % 7:
            super().on_request(ticket)
        else:
            self._effects.refuse(ticket, QueueFull("not today"))


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Forgets, "waiting must list every waiting ticket once"),
        (Answers, "it does not wait, or was answered already"),
        (Grants, "is not ready"),
        (CountsFailedGrants, "must not wait for ever"),
        (EvictsTheBusy, "is busy|takes no more than"),
        (BelievesAnybody, "must change nothing"),
        (HidesOne, "waiting must list every waiting ticket once"),
        (StaysOpen, "a shutdown must refuse every waiting ticket"),
        (Keeps, "must be refused with ReplicaLost"),
        (BeginsAnew, "waiting must list every waiting ticket once"),
        (ForgetsWhatIsServed, "is busy|takes no more than"),
        (IgnoresPriorities, "that of higher priority must be granted first"),
        (IgnoresUnloads, "which is unloaded, must be refused|must stop"),
        (RefusesOnly, "an unload must stop '.' with Effects.stop"),
        (Capricious, "the same events must lead to the same decisions"),
    ],
)
def test_a_scheduler_that_breaks_a_rule_is_caught(broken: Callable[[], Scheduler], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_scheduler(broken)


def test_a_swap_that_collides_is_caught() -> None:
    host = FakeEffects(Fifo(), ["a", "b"])
    host.request("a")

    with pytest.raises(AssertionError, match="collides with that of 'a'"):
        host.start_swap("b", ["a"])


def test_a_swap_of_something_ready_is_caught() -> None:
    host = FakeEffects(Fifo(), ["a"], ready=["a"])

    with pytest.raises(AssertionError, match="the target is ready"):
        host.start_swap("a", [])
