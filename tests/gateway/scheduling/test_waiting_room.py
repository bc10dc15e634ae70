"""Requests wait for a model: whatever happens, each is placed once, in its turn, and where a slot is free."""

from __future__ import annotations

from collections.abc import Sequence, Set

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from enginehouse import Candidate, ReplicaState, RequestError
from enginehouse.domain.errors import NoHealthyBackend
from enginehouse.domain.replica import Reason, Route
from enginehouse.errors import QueueFull, QueueTimeout
from enginehouse.interfaces.schedulers import SchedulingLimits
from enginehouse.routing.decision_plugins import must_wait
from enginehouse.routing_facts import Load
from enginehouse.scheduling.flow_control import Backlog
from enginehouse.scheduling.waiting_room import WaitingRoom
from enginehouse.tickets import Ticket
from tests.support.hypothesis_profiles import always_alike

MAX_WAIT_S, TIMEOUT_S = 10.0, 30.0


class Engines:
    """The candidates of each model, which tests change."""

    def __init__(self, slots: int = 1, backends: Sequence[str] = ("a", "b"), models: Sequence[str] = ("m",)) -> None:
        self.models = models
        self.loads = {backend: Load(slots=slots) for backend in backends}
        self.states = dict.fromkeys(backends, ReplicaState.READY)
        self.lost: set[str] = set()

    def candidates(self, model: str) -> list[Candidate]:
        return [
            Candidate(model=model, backend=each, replica=f"{model}@{each}", load=load, state=self.states[each])
            for each, load in self.loads.items()
            if each not in self.lost
        ]


class Guest:
    """A request that likes the backends in the order of ``likes``, each other request there as little as two places."""

    def __init__(self, model: str, engines: Engines, likes: Sequence[str], hall: Hall) -> None:
        self.model = model
        self.engines = engines
        self.likes = likes
        self.hall = hall
        self.ticket = Ticket(id="", replica=model, arrived=hall.time)
        self.at: str | None = None
        self.error: RequestError | None = None

    @property
    def is_waiting(self) -> bool:
        return self.at is None and self.error is None

    def pick(self, waited_for: Sequence[str] = ()) -> Route | None:
        candidates = self.engines.candidates(self.model)
        if not candidates:
            return None
        chosen = min(candidates, key=lambda each: self.likes.index(each.backend) + 2 * each.load.pending)
        waits = len(candidates) > 1 and must_wait(chosen, waited_for)
        return Route(self.model, chosen, Reason.MATCH, (self.model,), waits=waits)

    def arrive(self) -> None:
        route = self.pick(list(self.hall.room.models))
        if route is None:
            self.error = NoHealthyBackend(self.model)
        elif route.waits:
            try:
                self.hall.room.join(self.ticket, self)
            except QueueFull as error:
                self.error = error
        else:
            self.bind(route)

    def look(self) -> Route | None:
        return self.pick()

    def bind(self, route: Route) -> None:
        assert self.is_waiting
        load = route.chosen.load
        waited = self.hall.time - self.ticket.arrived
        is_only = len(self.engines.candidates(self.model)) < 2
        assert not load.slots or load.pending < load.slots or is_only or waited >= MAX_WAIT_S
        load.begin()
        self.at = route.chosen.backend
        self.hall.order.append(self)

    def start_over(self) -> None:
        assert not self.engines.candidates(self.model)
        self.refuse(NoHealthyBackend(self.model))

    def refuse(self, error: RequestError) -> None:
        assert self.is_waiting
        self.error = error

    def end(self) -> None:
        assert self.at is not None
        self.engines.loads[self.at].end()
        self.error = RequestError("it has ended")
        self.hall.room.plan()


class Hall:
    """A waiting room with its clock. ``order``: the requests in the order in which they were bound."""

    def __init__(self, engines: Engines, max_queue: int = 0) -> None:
        self.engines = engines
        self.time = 0.0
        self.backlog = Backlog()
        self.hosts = dict.fromkeys(engines.loads, self.backlog)
        self.order: list[Guest] = []
        self.changes = 0
        self.room = WaitingRoom(engines.candidates, self._backlogs, lambda: self.time, self._changed)
        limits = SchedulingLimits(max_wait=MAX_WAIT_S, queue_timeout=TIMEOUT_S, max_queue=max_queue)
        self.room.configure(limits, {})

    def send(self, *likes: str, model: str = "m", priority: int = 0) -> Guest:
        guest = Guest(model, self.engines, likes or tuple(self.engines.loads), self)
        guest.ticket.priority = priority
        guest.arrive()
        return guest

    def _backlogs(self, model: str) -> Set[Backlog]:
        return {self.hosts[each.backend]: None for each in self.engines.candidates(model)}.keys()

    def _changed(self) -> None:
        self.changes += 1


@pytest.fixture
def hall() -> Hall:
    return Hall(Engines())


def test_a_request_waits_for_whichever_slot_is_free_first(hall: Hall) -> None:
    first, second, third = hall.send("a", "b"), hall.send("b", "a"), hall.send("a", "b")
    assert [first.at, second.at, third.at] == ["a", "b", None]
    assert hall.room.models == {"m": 1}
    second.end()
    assert third.at == "b"
    assert not hall.room.models
    assert hall.backlog.waiting == 0


def test_a_request_stays_for_the_replica_that_it_likes_much_more() -> None:
    hall = Hall(Engines())
    here = hall.send("a", "b")
    patient, other = hall.send("a", "x", "y", "z", "b"), hall.send("a", "b")
    assert [patient.at, other.at] == [None, "b"]
    here.end()
    assert patient.at == "a"


def test_those_ahead_count_where_they_would_go(hall: Hall) -> None:
    here = [hall.send("a", "b"), hall.send("b", "a")]
    patient, other = hall.send("a", "x", "y", "z", "b"), hall.send("a", "x", "b")
    here[1].end()
    assert [patient.at, other.at] == [None, "b"]  # without the first one ahead, a would be as good for the second


def test_a_newcomer_does_not_overtake_a_request_that_waits_for_its_model(hall: Hall) -> None:
    hall.send("a", "b"), hall.send("b", "a")
    early = hall.send("a", "b")
    hall.engines.loads["a"].slots = 2  # and nobody has told the room
    late = hall.send("a", "b")
    assert [early.at, late.at] == ["a", None]


def test_a_higher_priority_comes_first_and_age_decides_in_the_end(hall: Hall) -> None:
    busy = [hall.send("a", "b"), hall.send("b", "a")]
    low, high = hall.send(priority=0), hall.send(priority=5)
    assert [each.position for each in hall.room.waiting().values()] == [0, 1]
    assert hall.room.waiting()[high.ticket].position == 0
    busy[0].end()
    assert [low.at, high.at] == [None, "a"]
    hall.time = MAX_WAIT_S
    hall.room.tick()
    assert low.at is not None  # its replica's host protects it now


def test_a_request_with_one_candidate_left_is_bound_to_it(hall: Hall) -> None:
    hall.send("a", "b"), hall.send("b", "a")
    waits = hall.send()
    hall.engines.lost.add("a")
    hall.room.tick()
    assert waits.at == "b"


def test_a_request_without_any_candidate_starts_over(hall: Hall) -> None:
    hall.send("a", "b"), hall.send("b", "a")
    waits = hall.send()
    hall.engines.lost |= {"a", "b"}
    hall.room.tick()
    assert isinstance(waits.error, NoHealthyBackend)


def test_a_request_is_refused_when_the_room_is_full_or_its_time_is_over() -> None:
    hall = Hall(Engines(), max_queue=1)
    hall.send("a", "b"), hall.send("b", "a")
    waits, refused = hall.send(), hall.send()
    assert isinstance(refused.error, QueueFull)
    assert refused.error.retry_after == 1
    assert waits.is_waiting
    limits = SchedulingLimits(max_wait=0.0, queue_timeout=TIMEOUT_S)
    hall.room.configure(limits, {})
    hall.time = TIMEOUT_S
    hall.room.tick()
    assert isinstance(waits.error, QueueTimeout)
    assert "No replica of 'm'" in str(waits.error)


def test_a_plugin_that_fails_ends_the_request(hall: Hall) -> None:
    hall.send("a", "b"), hall.send("b", "a")
    waits = hall.send()

    def fail() -> Route:
        raise NoHealthyBackend("m")

    waits.look = fail  # type: ignore[method-assign]
    hall.room.plan(thoroughly=True)
    assert isinstance(waits.error, NoHealthyBackend)


def test_models_that_share_an_engine_take_their_turns_together() -> None:
    hall = Hall(Engines(models=("m", "n")))
    busy = [hall.send("a", "b"), hall.send("b", "a")]
    n, m = hall.send(model="n"), hall.send(model="m")
    busy[1].end()
    busy[0].end()
    assert hall.order[2:] == [n, m]


def test_a_restricted_priority_of_a_model_counts(hall: Hall) -> None:
    busy = [hall.send("a", "b"), hall.send("b", "a")]
    m, n = hall.send(model="m"), hall.send(model="n")
    hall.room.configure(SchedulingLimits(), {"n": 1})
    busy[0].end()
    assert [m.at, n.at] == [None, "a"]


class AnyOrder(RuleBasedStateMachine):
    """Arrivals, ends, cancels, losses and returns of backends, other limits: in any order."""

    @initialize(slots=st.integers(1, 2), max_queue=st.sampled_from([0, 4]))
    def begin(self, slots: int, max_queue: int) -> None:
        self.engines = Engines(slots, ("a", "b", "c"), ("m", "n"))
        self.hall = Hall(self.engines, max_queue)
        self.other = Backlog()
        self.guests: list[Guest] = []

    @rule(model=st.sampled_from("mn"), likes=st.permutations("abc"), priority=st.integers(0, 2))
    def arrives(self, model: str, likes: list[str], priority: int) -> None:
        self.guests.append(self.hall.send(*likes, model=model, priority=priority))

    @precondition(lambda self: self._served())
    @rule(which=st.integers(0, 100))
    def ends(self, which: int) -> None:
        served = self._served()
        served[which % len(served)].end()

    @precondition(lambda self: self._waiting())
    @rule(which=st.integers(0, 100))
    def leaves(self, which: int) -> None:
        waiting = self._waiting()
        guest = waiting[which % len(waiting)]
        guest.error = RequestError("the client has left")
        self.hall.room.leave(guest.ticket)
        self.hall.room.leave(guest.ticket)

    @rule(backend=st.sampled_from("abc"))
    def is_lost(self, backend: str) -> None:
        self.engines.lost.add(backend)
        self.hall.room.tick()

    @rule(backend=st.sampled_from("abc"))
    def comes_back(self, backend: str) -> None:
        self.engines.lost.discard(backend)
        self.hall.room.tick()

    @rule(backend=st.sampled_from("abc"), state=st.sampled_from([ReplicaState.READY, ReplicaState.STARTING]))
    def changes_state(self, backend: str, state: ReplicaState) -> None:
        self.engines.states[backend] = state
        self.hall.room.tick()

    @rule(backend=st.sampled_from("abc"), slots=st.integers(0, 3))
    def has_another_limit(self, backend: str, slots: int) -> None:
        self.engines.loads[backend].slots = slots
        self.hall.room.tick()

    @rule(backend=st.sampled_from("abc"))
    def changes_its_host(self, backend: str) -> None:
        self.hall.hosts[backend] = self.hall.backlog if self.hall.hosts[backend] is self.other else self.other
        self.hall.room.tick()

    @rule(seconds=st.sampled_from([1.0, 6.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.hall.time += seconds
        self.hall.room.tick()

    @rule(max_queue=st.sampled_from([0, 1, 4]), favourite=st.sampled_from("mn"))
    def reloads(self, max_queue: int, favourite: str) -> None:
        limits = SchedulingLimits(max_wait=MAX_WAIT_S, queue_timeout=TIMEOUT_S, max_queue=max_queue)
        self.hall.room.configure(limits, {favourite: 1})
        self.hall.room.tick()

    @invariant()
    def each_request_is_in_one_place(self) -> None:
        waiting = self._waiting()
        assert {each.ticket for each in waiting} == set(self.hall.room.waiting())
        assert len(waiting) == len(self.hall.room)
        assert sum(self.hall.room.models.values()) == len(waiting)
        assert len(self.hall.order) == len(set(self.hall.order))

    @invariant()
    def each_request_counts_at_each_host_of_its_model(self) -> None:
        for backlog in (self.hall.backlog, self.other):
            there = {each for each, host in self.hall.hosts.items() if host is backlog} - self.engines.lost
            assert backlog.waiting == (len(self._waiting()) if there else 0)

    @invariant()
    def loads_are_those_of_the_bound_requests(self) -> None:
        for backend, load in self.engines.loads.items():
            assert load.pending == sum(each.at == backend for each in self._served())

    @invariant()
    def the_next_request_waits_for_good_reason(self) -> None:
        places = self.hall.room.waiting()
        for guest in self._waiting():
            route = guest.look()
            assert route is not None
            if route.chosen.state is ReplicaState.READY:  # for others, the room plans a moment later
                assert places[guest.ticket].position > 0 or route.waits
            assert self.hall.time - guest.ticket.arrived < MAX_WAIT_S

    def _served(self) -> list[Guest]:
        return [each for each in self.guests if each.at is not None and each.error is None]

    def _waiting(self) -> list[Guest]:
        return [each for each in self.guests if each.is_waiting]


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(always_alike(100), stateful_step_count=40)


def test_an_event_without_a_free_slot_looks_once_at_each_model() -> None:
    looks: list[str] = []

    class Watched(Engines):
        def candidates(self, model: str) -> list[Candidate]:
            looks.append(model)
            return super().candidates(model)

    hall = Hall(Watched(models=("m", "n")))
    for _ in range(20):
        hall.send(model="m")
        hall.send(model="n")
    looks.clear()
    hall.room.queue_changed()
    assert looks == ["m", "n"]
