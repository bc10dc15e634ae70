"""Which lines run now: beside people, never before them."""

from __future__ import annotations

import pytest

from enginehouse import Candidate, Health, ReplicaState
from enginehouse.routing_facts import Load
from enginehouse_batches.objects import BatchSettings
from enginehouse_batches.plan import HostUse, Person, Plan, RunningLine, plan

HOUR = 3600.0
READY, STOPPED = ReplicaState.READY, ReplicaState.STOPPED


def replica(
    model: str, state: ReplicaState = READY, *, host: str = "local", slots: int = 4, pending: int = 0
) -> Candidate:
    load = Load(pending=pending, slots=slots)
    return Candidate(model=model, backend=model, replica=f"{model}@{model}", host=host, state=state, load=load)


def person(model: str, *, waits: bool = False, queued: bool = False) -> Person:
    return Person(model, None if waits or queued else model, waits or queued, queued)


def line(model: str, id: str = "1", *, backend: str | None = "", stops: int = 0) -> RunningLine:
    return RunningLine(id, model, model if backend == "" else backend, stops)


class Gateway:
    """What is planned for: replicas by model, and what has happened on hosts."""

    def __init__(self, *replicas: Candidate, quiet: float = 30.0, swaps: int = 3, slots: int = 4) -> None:
        self.replicas = {each.model: [each] for each in replicas}
        self.settings = BatchSettings(slots=slots, quiet=quiet, swaps_per_hour=swaps)
        self.use = HostUse(quiet, swaps)
        self.now = 0.0

    def plan(self, waiting: dict[str, int], *live: Person | RunningLine) -> Plan:
        people = [each for each in live if isinstance(each, Person)]
        running = [each for each in live if isinstance(each, RunningLine)]
        found = lambda model: self.replicas.get(model, ())  # noqa: E731
        return plan(waiting, running, people, found, self.use, self.settings, self.now)


@pytest.mark.parametrize(
    ("engine", "live", "lines"),
    [
        (replica("a"), [], 3),
        (replica("a", pending=1), [person("a")], 0),
        (replica("a", pending=3), [], 0),
        (replica("a", pending=1), [line("a")], 2),
        (replica("a", pending=1), [line("a", backend=None)], 1),
        (replica("a", slots=1), [], 1),
        (replica("a", slots=0), [], 4),
        (replica("a", slots=0), [line("a", "1"), line("a", "2")], 2),
        (replica("a", slots=0), [person("a")], 1),
        (replica("a", slots=0), [person("a"), line("a")], 0),
        (replica("a", slots=16, pending=8), [person("a")], 2),
        (replica("a", slots=64, pending=20), [person("a")], 4),
        (replica("a", slots=64), [person("b")], 4),
        (replica("a"), [person("a", waits=True)], 0),
    ],
)
def test_lines_take_free_slots_but_one(engine: Candidate, live: list[Person | RunningLine], lines: int) -> None:
    decided = Gateway(engine).plan({"a": 10}, *live)
    assert decided.start == ({"a": lines} if lines else {})
    assert bool(decided.why) is not bool(lines)


def test_where_people_were_a_moment_ago_lines_leave_the_caches_to_them() -> None:
    here = Gateway(replica("a"), replica("b", slots=32), replica("c", host="other"), replica("d", slots=0))
    for model in "ad":
        here.plan({}, person(model))
    here.now = HOUR - 1
    waiting = dict.fromkeys("abcd", 10)
    decided = here.plan(waiting)
    assert (decided.start, decided.aside) == ({"a": 1, "b": 4, "c": 3, "d": 4}, {"a", "b", "d"})
    here.now = HOUR
    assert here.plan(waiting) == ({"a": 3, "b": 4, "c": 3, "d": 4}, set(), [], {})


def test_no_more_lines_run_than_there_are() -> None:
    assert Gateway(replica("a")).plan({"a": 2}).start == {"a": 2}


def test_an_engine_at_which_requests_wait_gets_no_line() -> None:
    engine = replica("a", slots=0)
    engine.load.engine_waiting = 1
    assert Gateway(engine).plan({"a": 1}).start == {}


def test_lines_make_room_for_people_who_wait_for_a_slot() -> None:
    here = Gateway(replica("a", pending=4))
    lines = [line("a", "1"), line("a", "2"), line("a", "3")]
    assert here.plan({}, *lines).stop == []
    assert here.plan({}, *lines, person("a", waits=True)).stop == ["3"]
    assert here.plan({}, *lines, *[person("a", waits=True)] * 2).stop == ["2", "3"]
    worn = [line("a", "1"), line("a", "2", stops=3)]
    assert here.plan({}, *worn, person("a", waits=True)).stop == ["1"], "one that has often made room stays"


def test_lines_make_room_for_a_model_that_people_wait_for() -> None:
    here = Gateway(replica("a"), replica("b", STOPPED), replica("c", host="other"))
    lines = [line("a", "1"), line("c", "2")]
    assert here.plan({}, *lines, person("b", queued=True)).stop == ["1"]
    assert here.plan({}, *lines, person("b", waits=True)).stop == [], "it loads beside them"


def test_the_loaded_model_is_served_first() -> None:
    here = Gateway(replica("a", STOPPED), replica("b"), replica("c", STOPPED))
    decided = here.plan({"a": 5, "b": 5, "c": 5})
    assert decided.start == {"b": 3}
    assert decided.why == dict.fromkeys("ac", "another model of a batch is served first")
    assert here.plan({"a": 5, "c": 5}).start == {"a": 1}, "one line loads the model"
    loading = here.plan({"a": 4, "c": 5}, line("a", backend=None))
    assert loading.start == {}


def test_no_model_is_loaded_for_a_batch_while_people_use_the_host() -> None:
    here = Gateway(replica("a"), replica("b", STOPPED))
    assert here.plan({"b": 1}, person("a")).why == {"b": "people use the host 'local'"}
    here.now = 29.0
    assert here.plan({"b": 1}).start == {}
    here.now = 31.0
    assert here.plan({"b": 1}).start == {"b": 1}


def test_a_batch_loads_at_most_three_models_in_an_hour_in_which_people_work() -> None:
    names = "abcde"
    here = Gateway(*[replica(name, STOPPED) for name in names])
    loads: list[float] = []
    for minute in range(120):
        here.now = minute * 60.0
        if minute % 5 == 0:
            here.plan({}, person("a"))
        loads += [here.now] * len(here.plan(dict.fromkeys(names, 1000)).start)
    assert len(loads) == 6
    assert all(sum(at <= each < at + HOUR for each in loads) <= 3 for at in loads)


def test_with_nobody_there_models_follow_each_other() -> None:
    here = Gateway(*[replica(name, STOPPED) for name in "abcde"])
    assert [bool(here.plan({name: 1}).start) for name in "abcde"] == [True] * 5


def test_an_unhealthy_engine_and_an_unknown_model() -> None:
    sick = Candidate(model="a", backend="a", replica="a@a", health=Health.UNHEALTHY)
    here = Gateway(sick)
    assert here.plan({"a": 1}).why == {"a": "no healthy engine has the model"}
    assert here.plan({"unknown": 9}).start == {"unknown": 1}, "the gateway answers it"
    assert here.plan({"unknown": 8}, line("unknown", backend=None)).start == {}
