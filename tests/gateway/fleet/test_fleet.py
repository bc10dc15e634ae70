from __future__ import annotations

from collections.abc import Callable

import pytest

from enginehouse import Capabilities, ConfigError, Health, ReplicaState, Role
from enginehouse.config.schema import CheckSettings
from enginehouse.errors import NotFound
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.routing_facts import UNKNOWN, Load
from enginehouse_kit.testing import requirements
from tests.support.fake_clock import StoppedClock
from tests.support.routing import make_router, take_route

Make = Callable[..., BackendInfo]


def names(fleet: Fleet, model: str) -> list[str]:
    return [candidate.replica for candidate in fleet.snapshot.candidates(model)]


def capabilities(fleet: Fleet, model: str) -> Capabilities:
    return fleet.snapshot.candidates(model)[0].capabilities


def test_a_backend_offers_the_models_it_declares(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("gpu-1", "llama", "qwen", priority=3, role=Role.DECODE, host="rack"))
    assert list(fleet.snapshot.models) == ["llama", "qwen"]
    candidate = fleet.snapshot.candidates("llama")[0]
    assert candidate.replica == "llama@gpu-1"
    assert (candidate.priority, candidate.role, candidate.host) == (3, Role.DECODE, "rack")
    assert candidate.state is ReplicaState.READY


def test_candidates_stand_in_the_order_in_which_backends_were_added(fleet: Fleet, backend: Make) -> None:
    for name in ("c", "a", "b"):
        fleet.add(backend(name))
    for name in ("b", "c", "a"):
        fleet.set_models(name, {"m": UNKNOWN})
    assert names(fleet, "m") == ["m@c", "m@a", "m@b"]


def test_a_removed_backend_is_no_candidate_any_more(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m", "only-a"))
    fleet.add(backend("b", "m"))
    fleet.remove("a")
    assert names(fleet, "m") == ["m@b"]
    assert list(fleet.snapshot.models) == ["m"]
    assert [status.name for status in fleet.backends()] == ["b"]


def test_a_backend_that_comes_back_stands_last(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    fleet.add(backend("b", "m"))
    fleet.remove("a")
    fleet.add(backend("a", "m"))
    assert names(fleet, "m") == ["m@b", "m@a"]


def test_a_second_backend_of_the_same_name_is_refused(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    with pytest.raises(ConfigError, match="already a backend 'a'"):
        fleet.add(backend("a", "n"))
    assert list(fleet.snapshot.models) == ["m"]


def test_a_backend_that_declares_nothing_offers_what_is_discovered(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a"))
    assert fleet.snapshot.models == {}
    fleet.set_models("a", {"m": Capabilities(tools=True), "n": UNKNOWN})
    assert list(fleet.snapshot.models) == ["m", "n"]
    fleet.set_models("a", {"n": UNKNOWN})
    assert list(fleet.snapshot.models) == ["n"]


def test_a_backend_is_healthy_only_when_its_models_are_known(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", health=Health.UNKNOWN))
    fleet.add(backend("b", "m"))
    fleet.probe_succeeded("a")
    fleet.succeeded("a")
    assert (fleet.health("a"), fleet.snapshot.unlisted) == (Health.UNKNOWN, ("a",))
    fleet.set_models("a", {})
    fleet.probe_succeeded("a")
    assert (fleet.health("a"), fleet.snapshot.unlisted) == (Health.HEALTHY, ())


def test_a_backend_that_does_not_list_its_models_is_unhealthy_until_it_does(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", health=Health.UNKNOWN))
    fleet.list_failed("a", "status 404")
    assert fleet.health("a") is Health.UNHEALTHY
    assert fleet.backends()[0].last_error == "its models could not be listed: status 404"
    fleet.set_models("a", {"m": UNKNOWN})
    fleet.probe_succeeded("a")
    fleet.probe_succeeded("a")
    assert fleet.health("a") is Health.HEALTHY
    for _ in range(9):
        fleet.list_failed("a", "status 404")
    assert fleet.health("a") is Health.HEALTHY


def test_a_backend_that_failed_requests_is_tested_with_a_ready_model(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "cold", "warm", loads_models=True))
    fleet.set_state("warm@a", ReplicaState.READY)
    assert fleet.model_to_test("a") is None
    for _ in range(3):
        fleet.doubted("a", "answered 500")
    assert fleet.health("a") is Health.UNHEALTHY
    assert fleet.model_to_test("a") == "warm"
    assert fleet.model_to_test("gone") is None


def test_an_engine_may_have_another_name_for_a_model(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m", names={"m": "org/m"}))
    fleet.set_models("a", {"org/m": Capabilities(context_length=4096)})
    [found] = fleet.snapshot.candidates("m")
    assert (found.model, found.name_there, found.capabilities.context_length) == ("m", "org/m", 4096)
    for _ in range(3):
        fleet.doubted("a", "answered 500")
    assert fleet.model_to_test("a") == "org/m"


def test_an_engine_that_is_back_is_not_judged_by_the_latencies_before_its_end(fleet: Fleet, backend: Make) -> None:
    """With them, ``smart`` did not use it: its average changes only when it gets requests."""
    fleet.add(backend("a", "m"))
    fleet.add(backend("b", "m"))
    fleet.load("a").answered(900.0)
    fleet.load("b").answered(20.0)
    smart, busy = make_router(), fleet.load("b")
    for _ in range(20):
        busy.begin()
    assert take_route(smart, requirements("m"), fleet.snapshot).chosen.backend == "b"
    for _ in range(3):
        fleet.failed("a", "killed")
    for _ in range(2):
        fleet.probe_succeeded("a")
    assert fleet.load("a").avg_latency_ms == 0
    assert take_route(smart, requirements("m"), fleet.snapshot).chosen.backend == "a"
    fleet.load("a").answered(30.0)
    assert fleet.load("a").avg_latency_ms == 30.0


def test_a_backend_removed_before_it_listed_its_models_is_awaited_no_more(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a"))
    fleet.remove("a")
    assert fleet.snapshot.unlisted == ()


def test_discovery_adds_no_model_to_a_backend_that_declares_its_models(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    fleet.set_models("a", {"m": Capabilities(context_length=10), "surprise": UNKNOWN})
    assert list(fleet.snapshot.models) == ["m"]
    assert capabilities(fleet, "m").context_length == 10


@pytest.mark.parametrize(("url", "length"), [("", 10), ("http://a", None)])
def test_the_only_model_of_a_launched_engine_is_meant_whatever_it_is_called(
    fleet: Fleet, backend: Make, url: str, length: int | None
) -> None:
    """A ``command`` may lack llama-server's ``--alias``: then the engine calls its model by the path of the file."""
    fleet.add(backend("a", "m", url=url))
    fleet.set_models("a", {"/models/m.gguf": Capabilities(context_length=10)})
    assert capabilities(fleet, "m").context_length == length


def test_own_capabilities_win_over_declared_over_discovered(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", models={"m": Capabilities(vision=True)}))
    fleet.declare("m", Capabilities(vision=False, tools=False))
    fleet.set_models("a", {"m": Capabilities(vision=False, tools=True, context_length=4096)})
    assert capabilities(fleet, "m") == Capabilities(vision=True, tools=False, context_length=4096)


def test_declared_capabilities_hold_wherever_the_model_is_served_also_later(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    fleet.add(backend("b"))
    fleet.declare("m", Capabilities(tools=False))
    fleet.set_models("b", {"m": Capabilities(tools=True)})
    fleet.add(backend("c", "m"))
    assert [each.capabilities.tools for each in fleet.snapshot.candidates("m")] == [False, False, False]


def test_discovering_the_same_again_publishes_nothing(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a"))
    fleet.set_models("a", {"m": Capabilities(tools=True)})
    before = fleet.snapshot
    fleet.set_models("a", {"m": Capabilities(tools=True)})
    assert fleet.snapshot is before


def test_a_changed_mapping_of_the_caller_changes_nothing(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a"))
    found = {"m": UNKNOWN}
    fleet.set_models("a", found)
    found["n"] = UNKNOWN
    fleet.set_models("a", found)
    assert list(fleet.snapshot.models) == ["m", "n"]


def test_three_failures_take_a_backend_out_and_two_successes_bring_it_back(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m", "n"))
    for _ in range(3):
        assert fleet.snapshot.candidates("m")[0].health is Health.HEALTHY
        fleet.failed("a", "connection refused")
    assert {fleet.snapshot.candidates(model)[0].health for model in ("m", "n")} == {Health.UNHEALTHY}
    fleet.succeeded("a")
    assert fleet.snapshot.candidates("m")[0].health is Health.UNHEALTHY
    fleet.succeeded("a")
    assert fleet.snapshot.candidates("m")[0].health is Health.HEALTHY


def test_a_success_of_a_healthy_backend_publishes_nothing(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    before = fleet.snapshot
    fleet.succeeded("a")
    fleet.failed("a", "once")
    fleet.succeeded("a")
    assert fleet.snapshot is before


def test_a_health_change_leaves_other_backends_candidates_alone(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    fleet.add(backend("b", "m"))
    other = fleet.snapshot.candidates("m")[1]
    for _ in range(3):
        fleet.failed("a", "refused")
    assert fleet.snapshot.candidates("m")[1] is other


def test_a_late_result_of_a_removed_backend_is_ignored(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    fleet.remove("a")
    fleet.succeeded("a")
    fleet.failed("a", "too late")
    assert fleet.backends() == ()


def test_a_draining_backend_says_so_until_it_is_undrained(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    fleet.drain("a")
    drained = fleet.snapshot
    fleet.drain("a")
    assert fleet.snapshot is drained
    assert drained.candidates("m")[0].draining
    assert fleet.backends()[0].draining
    fleet.undrain("a")
    assert not fleet.snapshot.candidates("m")[0].draining


def test_the_state_of_one_replica_leaves_the_others_alone(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m", "n"))
    fleet.set_state("m@a", ReplicaState.STOPPED, wake_s=12.5)
    stopped, other = fleet.snapshot.candidates("m")[0], fleet.snapshot.candidates("n")[0]
    assert (stopped.state, stopped.wake_s) == (ReplicaState.STOPPED, 12.5)
    assert (other.state, other.wake_s) == (ReplicaState.READY, 0.0)
    fleet.set_state("m@a", ReplicaState.READY)
    assert fleet.snapshot.candidates("m")[0].wake_s == 0.0


def test_a_replicas_name_may_be_hard_to_take_apart(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("b@c", "m@1"))
    fleet.set_state("m@1@b@c", ReplicaState.FAILED)
    assert fleet.snapshot.candidates("m@1")[0].state is ReplicaState.FAILED


def test_a_load_is_the_same_object_for_all_models_and_in_every_snapshot(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m", "n"))
    load = fleet.load("a")
    old = fleet.snapshot
    fleet.drain("a")
    load.begin()
    for snapshot in (old, fleet.snapshot):
        assert snapshot.candidates("m")[0].load is load
        assert snapshot.candidates("n")[0].load is load
    assert fleet.backends()[0].pending == 1


def test_the_status_tells_what_people_ask_for(fleet: Fleet, backend: Make, clock: StoppedClock) -> None:
    fleet.add(backend("a", "m", driver="vllm", priority=2, role=Role.PREFILL, host="rack", health=Health.UNKNOWN))
    fleet.load("a").answered(40.0)
    clock.now = 123.0
    fleet.failed("a", "connection refused")
    status = fleet.backends()[0]
    assert (status.name, status.url, status.driver) == ("a", "http://a", "vllm")
    assert (status.priority, status.role, status.host) == (2, Role.PREFILL, "rack")
    assert (status.health, status.draining, status.models) == (Health.UNHEALTHY, False, ("m",))
    assert (status.pending, status.avg_latency_ms) == (0, 40.0)
    assert (status.last_error, status.last_error_at) == ("connection refused", 123.0)


def test_changes_of_health_are_told_once_they_can_be_seen(clock: StoppedClock, backend: Make) -> None:
    told: list[object] = []
    fleet = Fleet(
        CheckSettings(failures=1, successes=1),
        clock,
        on_health=lambda name, health, _: told.append((name, health, fleet.snapshot.candidates("m")[0].health)),
    )
    fleet.add(backend("a", "m"))
    fleet.succeeded("a")
    fleet.failed("a", "refused")
    fleet.failed("a", "refused")
    fleet.set_state("m@a", ReplicaState.STARTING, wake_s=3)
    assert told == [
        ("a", Health.UNHEALTHY, Health.UNHEALTHY),
        ("a", Health.HEALTHY, Health.HEALTHY),
    ]


def test_it_is_told_when_replicas_come_and_go(clock: StoppedClock, backend: Make) -> None:
    told: list[list[str]] = []
    fleet = Fleet(CheckSettings(), clock, on_replicas=lambda: told.append(sorted(fleet.snapshot.models)))
    fleet.add(backend("a", "m"))
    fleet.add(backend("b"))
    fleet.set_models("b", {"n": UNKNOWN})
    fleet.set_models("b", {"n": Capabilities(vision=True)})
    fleet.set_state("m@a", ReplicaState.STOPPED)
    fleet.drain("a")
    fleet.remove("a")
    assert told == [["m"], ["m", "n"], ["n"]]


def test_a_backend_marked_unhealthy_takes_no_requests_from_that_moment_on(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "m"))
    fleet.mark_unhealthy("a", "killed")
    assert fleet.snapshot.candidates("m")[0].health is Health.UNHEALTHY
    assert fleet.backends()[0].last_error == "killed"
    fleet.mark_unhealthy("nobody", "killed")


@pytest.mark.parametrize("state", [state for state in ReplicaState if state is not ReplicaState.READY])
def test_nothing_is_held_against_an_engine_that_does_not_run(fleet: Fleet, backend: Make, state: ReplicaState) -> None:
    fleet.add(backend("a", "m"))
    fleet.mark_unhealthy("a", "hung")
    fleet.set_state("m@a", state, wake_s=3, problem="killed")
    for _ in range(9):
        fleet.failed("a", "broke off")
    [candidate] = fleet.snapshot.candidates("m")
    assert (candidate.health, candidate.state, candidate.wake_s) == (Health.HEALTHY, state, 3)
    assert fleet.backends()[0].last_error == "killed"

    fleet.set_state("m@a", ReplicaState.READY)
    for _ in range(9):
        fleet.failed("a", "broke off")
    assert fleet.health("a") is Health.UNHEALTHY


@pytest.mark.parametrize(
    "ask",
    [
        lambda fleet: fleet.remove("gpu-2"),
        lambda fleet: fleet.set_models("gpu-2", {}),
        lambda fleet: fleet.drain("gpu-2"),
        lambda fleet: fleet.undrain("gpu-2"),
        lambda fleet: fleet.load("gpu-2"),
    ],
)
def test_an_unknown_backend_is_not_found_with_a_guess(
    fleet: Fleet, backend: Make, ask: Callable[[Fleet], object]
) -> None:
    fleet.add(backend("gpu-1", "m"))
    with pytest.raises(NotFound, match=r"no backend 'gpu-2'; did you mean \"gpu-1\"\?"):
        ask(fleet)


def test_an_unknown_replica_is_not_found_with_a_guess(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("gpu-1", "m"))
    with pytest.raises(NotFound, match=r"no replica 'm@gpu-2'.*m@gpu-1"):
        fleet.set_state("m@gpu-2", ReplicaState.READY)
    with pytest.raises(NotFound, match=r"no replica 'zzz'$"):
        fleet.set_state("zzz", ReplicaState.READY)


def test_the_latency_is_the_mean_of_the_first_answers_and_a_slow_average_of_many() -> None:
    load = Load()
    for latency in (10.0, 20.0, 60.0):
        load.answered(latency)
    assert load.avg_latency_ms == pytest.approx(30.0)
    for _ in range(1000):
        load.answered(30.0)
    load.answered(1030.0)
    assert load.avg_latency_ms == pytest.approx(40.0, abs=0.5)


def test_a_model_that_its_server_passes_on_is_ready_without_a_load(fleet: Fleet, backend: Make) -> None:
    fleet.add(backend("a", "local", "cloud", loads_models=True))
    fleet.set_proxied("a", frozenset({"cloud"}))
    [cloud], [local] = fleet.snapshot.candidates("cloud"), fleet.snapshot.candidates("local")
    assert (cloud.state, cloud.proxied, cloud.wake_s) == (ReplicaState.READY, True, 0.0)
    assert (local.state, local.proxied) == (ReplicaState.STOPPED, False)
    fleet.set_proxied("a", frozenset())
    assert fleet.snapshot.candidates("cloud")[0].state is ReplicaState.STOPPED


def test_what_was_answered_long_ago_does_not_hide_that_an_engine_fails_now(
    fleet: Fleet, backend: Make, clock: StoppedClock
) -> None:
    fleet.add(backend("a", "m"))
    for _ in range(1000):
        fleet.succeeded("a")
    for _ in range(13):  # two minutes of probes
        clock.now += 10
        fleet.probe_succeeded("a")
    for _ in range(10):
        fleet.failed("a", "it answered 503")
    assert fleet.load("a").error_share == 1.0
