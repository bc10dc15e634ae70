"""Whatever happens, in whatever order, on whatever host: the promises hold.

``FakeEffects`` watches most of them: every ticket is resolved once, nothing busy or pinned is evicted, no swaps
collide, no grant beyond what there is room for. ``Watched`` adds those of ``fifo`` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from enginehouse import ReplicaState, Swapper
from enginehouse.domain.errors import ShuttingDown
from enginehouse.errors import LoadFailed, NotEnoughMemory, ReplicaLost
from enginehouse.tickets import HostedReplica, SwapDone, SwapId, Ticket
from enginehouse_kit.testing import AtMost, FakeEffects, FakeSwap, OneAtATime
from enginehouse_scheduling.fifo import Fifo

NAMES = "abcde"
REPLICAS = st.sampled_from(NAMES)
SOME = st.integers(0, 1000)


class RandomRules(OneAtATime):
    """``rules``: pairs of a target and what it evicts, in no sensible order."""

    def __init__(self, rules: set[tuple[str, str]]) -> None:
        self.rules = rules

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return [replica for replica in running if replica != target and (target, replica) in self.rules]


SWAPPERS: st.SearchStrategy[Swapper] = st.one_of(
    st.just(OneAtATime()),
    st.builds(AtMost, st.integers(1, 3)),
    st.builds(RandomRules, st.sets(st.tuples(REPLICAS, REPLICAS))),
)
LIMITS = st.fixed_dictionaries(
    {
        "max_loads": st.sampled_from([0, 1, 2]),
        "cancel_loads": st.sampled_from(["wanted", "always", "never"]),
        "max_wait": st.sampled_from([0.0, 1.0, 5.0]),
        "min_residency": st.sampled_from([0.0, 2.0, 8.0]),
        "max_queue": st.sampled_from([0, 5]),
        "queue_timeout": st.sampled_from([0.0, 20.0]),
    }
)
HOSTED = st.tuples(
    *(
        st.builds(
            HostedReplica,
            replica=st.just(name),
            model=st.just(name),
            priority=st.sampled_from([0, 0, 3]),
            concurrency=st.sampled_from([0, 0, 1, 2]),
            pin=st.sampled_from([False, False, False, True]),
        )
        for name in NAMES
    )
)


class Watched(FakeEffects):
    """Also watches the loads at once, residencies, the swapper's word, and who gets past whoever waited too long."""

    def __init__(self, *given: Any, swapper: Swapper, **settings: Any) -> None:
        self.swapper = swapper
        self.recent: list[str] = []
        self.loaded_at: dict[str, float] = {}
        self.joined: list[Ticket] = []
        self.cramped: set[str] = set()
        self.last_resorts: set[SwapId] = set()
        super().__init__(*given, swapper=swapper, **settings)

    def use(self, replica: str) -> None:
        self.recent = [*(each for each in self.recent if each != replica), replica]

    def order(self) -> list[str]:
        runs = list(dict.fromkeys([*self.running(), *(swap.target for swap in self.swaps.values())]))
        return sorted(runs, key=lambda replica: self.recent.index(replica) if replica in self.recent else -1)

    def evictions(self, target: str) -> list[str]:
        evict = list(self.swapper.eviction_for(target, self.order()))
        if target in self.cramped:
            evict += [each for each in self.dispensable(target) if each not in evict]
        return evict

    def dispensable(self, target: str) -> list[str]:
        return [each for each in self.order() if each != target and not self.facts.replicas[each].pin]

    def cancel(self, ticket: Ticket) -> None:
        super().cancel(ticket)
        self.forget_lines()

    def _resolve(self, what: str, ticket: Ticket) -> None:
        super()._resolve(what, ticket)
        self.forget_lines()

    def forget_lines(self) -> None:
        self.cramped &= {ticket.replica for ticket in self.waiting}

    def too_new(self, evict: Sequence[str]) -> bool:
        return any(self.loaded_at.get(each, -1e9) + self.limits.min_residency > self.time for each in evict)

    def loads(self) -> int:
        return len(self.swaps.keys() - set(self.cancelled))

    def starving(self) -> tuple[Ticket, Sequence[str]] | None:
        """Who waited longest, and what it evicts; ``None`` if it has waited short of ``max_wait``, or cannot start."""
        loading = {swap.target for swap in self.swaps.values()}
        oldest = min((each for each in self.waiting if each.replica not in loading), key=age, default=None)
        if oldest is None or not self.limits.max_wait or self.time - oldest.arrived < self.limits.max_wait:
            return None
        target = oldest.replica
        evict = self.evictions(target)
        dying = {*self.stopping, *(each for swap in self.swaps.values() for each in swap.evict)}
        at_rest = self.states[target] in (ReplicaState.STOPPED, ReplicaState.FAILED) and target not in dying
        pinned = any(self.facts.replicas[each].pin for each in evict)
        return (oldest, evict) if at_rest and not pinned and not {*self.stopping} & {*evict} else None

    def grant(self, ticket: Ticket) -> bool:
        if (starving := self.starving()) and ticket not in self.joined:
            oldest, evict = starving
            touched = {each for swap in self.swaps.values() for each in (swap.target, *swap.evict)}
            free = not touched & {oldest.replica, *evict} and not self.too_new(evict)
            full = 0 < self.limits.max_loads <= self.loads()
            blocks = age(oldest) < age(ticket) and ticket.replica in evict
            assert not (blocks and free and not full), f"{ticket.id} got past {oldest.id}, which evicts {evict}"
        taken = super().grant(ticket)
        if taken:
            self.use(ticket.replica)
        return taken

    def start_swap(self, target: str, evict: Sequence[str]) -> SwapId:
        assert list(evict) == self.evictions(target)
        assert not self.too_new(evict)
        assert not self.limits.max_loads or self.loads() < self.limits.max_loads
        assert not set(evict) & set(self.stopping)
        if (starving := self.starving()) and starving[0].replica != target:
            assert not {target, *evict} & {starving[0].replica, *starving[1]}, f"{target} is in the way of {starving}"
        self.use(target)
        for each in evict:
            self.loaded_at.pop(each, None)
        swap = super().start_swap(target, evict)
        if target in self.cramped:
            self.last_resorts.add(swap)
        return swap

    def swap_done(self, target: str, error: Exception | None = None) -> None:
        swap = next(swap for swap in self.swaps.values() if swap.target == target)
        if swap.id not in self.cancelled:
            self.joined = [ticket for ticket in self.waiting if ticket.replica == target]
        if error is None:
            self.loaded_at[target] = self.time
        before = list(self.waiting)
        again = isinstance(error, NotEnoughMemory) and self.can_have_more_memory(swap)
        if again and self.joined:
            self.cramped.add(target)
        super().swap_done(target, error)
        if error is not None:
            fails = [ticket for ticket in before if self.refused.get(ticket) is error]
            expected = [] if again else self.joined
            assert fails == expected, "a failed load fails those who joined it, and nobody else"
        self.joined = []

    def can_have_more_memory(self, swap: FakeSwap) -> bool:
        stays = [each for each in self.dispensable(swap.target) if each not in swap.evict]
        return bool(stays) and swap.id not in self.last_resorts

    def serve_done(self, replica: str) -> None:
        self.use(replica)
        super().serve_done(replica)

    def crash(self, replica: str) -> None:
        self.loaded_at.pop(replica, None)
        super().crash(replica)

    def stop_done(self, replica: str) -> None:
        self.loaded_at.pop(replica, None)
        super().stop_done(replica)


def age(ticket: Ticket) -> tuple[float, int]:
    return ticket.arrived, int(ticket.id.rpartition("-")[2])


class FifoMachine(RuleBasedStateMachine):
    host: Watched

    @initialize(hosted=HOSTED, ready=st.sets(REPLICAS, max_size=2), swapper=SWAPPERS, limits=LIMITS)
    def start(
        self, hosted: tuple[HostedReplica, ...], ready: set[str], swapper: Swapper, limits: dict[str, Any]
    ) -> None:
        self.scheduler = Fifo()
        self.host = Watched(self.scheduler, hosted, ready=sorted(ready), swapper=swapper, **limits)

    @rule(replica=REPLICAS, priority=st.sampled_from([0, 0, 5]), count=st.sampled_from([1, 1, 3]))
    def request(self, replica: str, priority: int, count: int) -> None:
        for _ in range(count):
            self.host.request(replica, priority)

    @precondition(lambda self: self.host.waiting)
    @rule(some=SOME)
    def cancel(self, some: int) -> None:
        self.host.cancel(self.host.waiting[some % len(self.host.waiting)])

    @precondition(lambda self: self.host.waiting)
    @rule(some=SOME)
    def leave(self, some: int) -> None:
        self.host.disconnect(self.host.waiting[some % len(self.host.waiting)])

    @precondition(lambda self: self.host.swaps)
    @rule(some=SOME, failure=st.sampled_from([None, None, None, LoadFailed, NotEnoughMemory, NotEnoughMemory]))
    def swap_done(self, some: int, failure: type[LoadFailed] | None) -> None:
        swap = list(self.host.swaps.values())[some % len(self.host.swaps)]
        self.host.swap_done(swap.target, failure("no") if failure else None)

    @precondition(lambda self: self.host.in_flight.total())
    @rule(some=SOME)
    def serve_done(self, some: int) -> None:
        serving = list(self.host.in_flight.elements())
        self.host.serve_done(serving[some % len(serving)])

    @rule(replica=REPLICAS)
    def crash(self, replica: str) -> None:
        if self.host.states[replica] is ReplicaState.READY:
            waited = [ticket for ticket in self.host.waiting if ticket.replica == replica]
            self.host.crash(replica)
            assert all(isinstance(self.host.refused[ticket], ReplicaLost) for ticket in waited)

    @rule(replicas=st.lists(REPLICAS, min_size=1, max_size=2, unique=True))
    def unload(self, replicas: list[str]) -> None:
        self.host.unload(*replicas)

    @precondition(lambda self: self.host.stopping)
    @rule(some=SOME)
    def stop_done(self, some: int) -> None:
        self.host.stop_done(self.host.stopping[some % len(self.host.stopping)])

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0]))
    def tick(self, seconds: float) -> None:
        self.host.pass_time(seconds)

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0]))
    def time_passes_unnoticed(self, seconds: float) -> None:
        self.host.time += seconds

    @rule(swap=st.integers(1, 20), replica=REPLICAS)
    def late_word(self, swap: int, replica: str) -> None:
        if SwapId(swap) not in self.host.swaps:
            before = list(self.host.log)
            self.scheduler.on_swap_done(SwapDone(swap=SwapId(swap), target=replica, error=LoadFailed("late")))
            assert self.host.log == before

    @invariant()
    def who_waits_is_shown(self) -> None:
        if hasattr(self, "host"):
            shown = [each.ticket for each in self.scheduler.waiting()]
            assert len(shown) == len(self.host.waiting)
            assert set(shown) == set(self.host.waiting)

    @invariant()
    def nothing_in_flight_leaks(self) -> None:
        if hasattr(self, "host"):
            counted = {name: self.scheduler._state.usage.in_flight(name) for name in NAMES}
            assert counted == {name: self.host.in_flight[name] for name in NAMES}

    @invariant()
    def a_load_that_is_not_cancelled_is_wanted_if_the_limits_say_so(self) -> None:
        if hasattr(self, "host") and self.host.limits.cancel_loads == "always":
            wanted = {ticket.replica for ticket in self.host.waiting}
            loading = {swap.target for swap in self.host.swaps.values() if swap.id not in self.host.cancelled}
            assert loading <= wanted

    def teardown(self) -> None:
        if hasattr(self, "host"):
            self.host.settle()
            assert len(self.scheduler._queue) == 0
            self.host.request("a")
            self.host.shutdown(ShuttingDown("bye"))
            assert not self.host.waiting


FifoMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=50)
TestFifo = FifoMachine.TestCase
