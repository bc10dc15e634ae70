"""The parts that become what another configuration says, one by one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from enginehouse import Capabilities, Health, ReplicaState, Requirements
from enginehouse.config.schema import BackendSettings as Settings
from enginehouse.config.schema import CheckSettings, KeySettings, TimeoutSettings
from enginehouse.domain.errors import Forbidden
from enginehouse.errors import RateLimited, Unauthorized
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.routing_facts import UNKNOWN
from enginehouse.scheduling.host_engines import IdleReplicas
from enginehouse.telemetry.answer_meter import NO_ANSWER
from enginehouse_callers.accounts import KeyHolder, Reservation
from enginehouse_callers.keyring import Keyring
from tests.support.fake_clock import StoppedClock
from tests.support.keys import asking
from tests.support.served_gateway import limits_at

# --- keys


def caller(ring: Keyring, key: str) -> KeyHolder:
    holder = ring.caller([(b"x-api-key", key.encode())])
    assert holder is not None
    return holder


def running(holder: KeyHolder, times: int) -> list[Reservation | None]:
    """Those of so many requests that are let in."""
    found: list[Reservation | None] = []
    with suppress(RateLimited):
        for _ in range(times):
            found.append(holder.admit(Requirements(model="m"), None))  # noqa: PERF401 - those before the refusal count
    return found


def admitted(holder: KeyHolder, times: int = 100) -> int:
    """How many of so many requests are let in."""
    return len(running(holder, times))


def test_a_key_that_is_gone_is_refused_and_one_that_comes_is_known() -> None:
    ring = Keyring(
        [KeySettings(name="a", key="one"), KeySettings(name="b", key="two")], limits_at(StoppedClock(1000.0))
    )
    ring.configure([KeySettings(name="b", key="two"), KeySettings(name="c", key="three")])
    assert caller(ring, "two").name == "b"
    assert caller(ring, "three").name == "c"
    with pytest.raises(Unauthorized):
        caller(ring, "one")


def test_with_the_last_key_gone_everybody_may_come_in() -> None:
    ring = Keyring([KeySettings(name="a", key="one")], limits_at(StoppedClock(1000.0)))
    ring.configure([])
    assert ring.caller([]) is None


def test_a_key_keeps_what_was_counted_even_with_another_secret() -> None:
    ring = Keyring(
        [KeySettings(name="a", key="one", requests_per_minute=5, max_concurrent=9)], limits_at(StoppedClock(1000.0))
    )
    holder = caller(ring, "one")
    live = running(holder, 3)
    assert len(live) == 3
    ring.configure([KeySettings(name="a", key="two", requests_per_minute=5, max_concurrent=4)])
    assert caller(ring, "two") is holder
    live += running(holder, 100)
    assert len(live) == 4, "three of four run already"
    for each in live:
        assert each is not None
        each.settle(0, NO_ANSWER, "")
    assert admitted(holder) == 1, "four of five were let in in this minute"
    with pytest.raises(Unauthorized):
        caller(ring, "one")


@pytest.mark.parametrize(("limit", "left"), [(10, 6), (5, 1), (4, 0), (2, 0), (0, 100)])
def test_another_limit_counts_what_was_used(limit: int, left: int) -> None:
    ring = Keyring([KeySettings(name="a", key="one", requests_per_minute=5)], limits_at(StoppedClock(1000.0)))
    holder = caller(ring, "one")
    assert admitted(holder, 4) == 4
    ring.configure([KeySettings(name="a", key="one", requests_per_minute=limit)])
    assert admitted(holder) == left


def test_a_limit_where_there_was_none_begins_with_a_whole_minute() -> None:
    ring = Keyring([KeySettings(name="a", key="one")], limits_at(StoppedClock(1000.0)))
    holder = caller(ring, "one")
    assert admitted(holder) == 100
    ring.configure([KeySettings(name="a", key="one", requests_per_minute=5)])
    assert admitted(holder) == 5


def test_what_has_come_back_of_a_limit_counts_by_the_old_one() -> None:
    clock = StoppedClock(1000.0)
    ring = Keyring([KeySettings(name="a", key="one", requests_per_minute=60)], limits_at(clock))
    holder = caller(ring, "one")
    assert admitted(holder, 60) == 60
    clock.now += 10
    ring.configure([KeySettings(name="a", key="one", requests_per_minute=120)])
    assert admitted(holder) == 70


def test_a_key_may_do_what_is_configured_now() -> None:
    ring = Keyring([KeySettings(name="a", key="one", admin=True)], limits_at(StoppedClock(1000.0)))
    asking(ring).admin([(b"x-api-key", b"one")])
    ring.configure([KeySettings(name="a", key="one", models=["n"], priority=3)])
    holder = caller(ring, "one")
    assert (holder.may_use("m"), holder.may_use("n"), holder.priority) == (False, True, 3)
    with pytest.raises(Forbidden):
        asking(ring).admin([(b"x-api-key", b"one")])


# --- the fleet


def fleet(*backends: BackendInfo, failures: int = 3) -> Fleet:
    made = Fleet(CheckSettings(failures=failures), StoppedClock(1000.0))
    for each in backends:
        made.add(each)
    return made


def remote(name: str, **more: Any) -> BackendInfo:
    return BackendInfo(**{"name": name, "url": f"http://{name}", "models": {"m": UNKNOWN}, **more})


def test_a_backend_that_stays_keeps_what_is_known_of_it() -> None:
    now = fleet(remote("a", models=None), remote("b"))
    now.set_models("a", {"x": Capabilities(context_length=9)})
    now.succeeded("a")
    now.load("a").begin()
    now.load("a").answered(70)
    now.drain("a")
    now.become(fleet(remote("c"), remote("a", models=None, priority=4)))
    assert [status.name for status in now.backends()] == ["c", "a"]
    status = now.backends()[1]
    assert (status.health, status.pending, status.avg_latency_ms, status.draining) == (Health.HEALTHY, 1, 70, True)
    assert status.models == ("x",)
    [candidate] = now.snapshot.candidates("x")
    assert (candidate.priority, candidate.load.pending, candidate.capabilities.context_length) == (4, 1, 9)
    assert [candidate.backend for candidate in now.snapshot.candidates("m")] == ["c"]


@pytest.mark.parametrize("moved", [{"url": "http://elsewhere"}, {"driver": "vllm"}])
def test_a_backend_elsewhere_is_another_one(moved: dict[str, str]) -> None:
    now = fleet(remote("a"))
    now.succeeded("a")
    now.load("a").begin()
    now.become(fleet(remote("a", **moved)))
    [status] = now.backends()
    assert (status.health, status.pending) == (Health.UNKNOWN, 0)


def managed(host: str = "local", model: str = "m") -> BackendInfo:
    return BackendInfo(name="a", url="", host=host, models={model: UNKNOWN}, health=Health.HEALTHY)


@pytest.mark.parametrize(
    ("other", "state"),
    [
        (managed(), ReplicaState.READY),
        (msgspec.structs.replace(managed(), driver="vllm", priority=2), ReplicaState.READY),
        (managed(host="other"), ReplicaState.STOPPED),
        (remote("a"), ReplicaState.READY),
    ],
)
def test_a_managed_backend_keeps_its_state_where_it_is(other: BackendInfo, state: ReplicaState) -> None:
    now, then = fleet(managed()), fleet(other)
    now.set_state("m@a", ReplicaState.READY)
    if not other.url:
        then.set_state("m@a", ReplicaState.STOPPED)
    now.become(then)
    [candidate] = now.snapshot.candidates("m")
    assert candidate.state is state


def test_health_is_judged_by_the_new_checks() -> None:
    now = fleet(remote("a"))
    now.succeeded("a")
    now.failed("a", "no")
    now.become(fleet(remote("a"), failures=2))
    now.failed("a", "no")
    assert now.health("a") is Health.UNHEALTHY


def test_a_candidate_that_is_as_it_was_is_the_same() -> None:
    now = fleet(remote("a"), remote("b"))
    before = now.snapshot.candidates("m")
    now.become(fleet(remote("b", priority=1), remote("a")))
    after = now.snapshot.candidates("m")
    assert [candidate.backend for candidate in after] == ["b", "a"]
    assert after[1] is before[0]


def test_what_the_fleet_is_told_of_who_is_gone_is_no_news() -> None:
    now = fleet(remote("a"))
    now.become(fleet(remote("b")))
    now.failed("a", "no")
    now.succeeded("a")
    assert [status.name for status in now.backends()] == ["b"]
    now.add(remote("c"))
    assert [candidate.backend for candidate in now.snapshot.candidates("m")] == ["b", "c"]


# --- upstreams and idle replicas


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"priority": 3, "timeouts": TimeoutSettings(stall=1), "models": ["x"]}, True),
        ({"url": "http://b"}, False),
        ({"api_key": "other"}, False),
        ({"pass_authorization": True}, False),
        ({"verify_tls": False}, False),
    ],
)
def test_an_upstream_is_for_settings_that_reach_the_same_engine_in_the_same_way(
    changed: dict[str, Any], same: bool
) -> None:
    settings = Settings(url="http://a", api_key="key")
    upstream = Upstream("a", settings, TimeoutSettings(), Outside())
    assert upstream.is_for(msgspec.structs.replace(settings, **changed)) is same


def test_another_ttl_counts_from_the_last_use() -> None:
    idle = IdleReplicas()
    ready = dict.fromkeys("abc", ReplicaState.READY)
    idle.due(ready, {}, {"a": 100, "b": 100}, 0)
    idle.used("a", 5)
    ttls = {"a": 10, "b": 0, "c": 10}
    assert idle.due(ready, {}, ttls, 14) == []
    assert idle.due(ready, {}, ttls, 15) == ["a"]
    assert idle.due(ready, {}, ttls, 24) == ["c"]


@pytest.mark.parametrize(
    "shown",
    [
        [(b"authorization", b"Bearer one"), (b"x-api-key", b"foreign")],
        [(b"x-api-key", b"foreign"), (b"authorization", b"Bearer one")],
        [(b"authorization", b"Bearer foreign"), (b"api-key", b"one")],
        [(b"authorization", b"Bearer old"), (b"x-api-key", b"one")],
        [(b"authorization", b"Bearer "), (b"x-api-key", b"one")],
        [(b"authorization", b"Basic eDp5"), (b"x-api-key", b"one")],
    ],
)
def test_one_key_that_is_right_is_enough(shown: list[tuple[bytes, bytes]]) -> None:
    keys = [KeySettings(name="a", key="one"), KeySettings(name="b", key="old", expires="1970-01-01")]
    ring = Keyring(keys, limits_at(StoppedClock(1000.0)), lambda: 1000.0)
    for _ in range(2):
        holder = ring.caller(shown)
        assert holder is not None
        assert holder.name == "a"


def test_without_a_right_key_the_error_is_that_of_the_first_one() -> None:
    keys = [KeySettings(name="a", key="one"), KeySettings(name="b", key="old", expires="1970-01-01")]
    ring = Keyring(keys, limits_at(StoppedClock(1000.0)), lambda: 1000.0)
    with pytest.raises(Unauthorized, match="'b' has expired"):
        ring.caller([(b"x-api-key", b"old"), (b"authorization", b"Bearer foreign")])
    with pytest.raises(Unauthorized, match="Unknown API key"):
        ring.caller([(b"x-api-key", b"foreign"), *[(b"api-key", b"more")] * 100, (b"api-key", b"one")])
