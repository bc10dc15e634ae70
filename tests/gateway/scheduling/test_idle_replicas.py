from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from enginehouse import ReplicaState
from enginehouse.domain.ticket import Ticket
from enginehouse.scheduling.host_engines import IdleReplicas
from tests.support.launched_gateway import Launches, served
from tests.support.scripted_engine import scripted_engines
from tests.support.waiting import until

READY = ReplicaState.READY


@pytest.fixture
def idle() -> IdleReplicas:
    return IdleReplicas()


TTLS = {"short": 10.0, "long": 100.0, "forever": 0.0}


NONE: Mapping[str, int] = {}
ONLY_SHORT = {"short": 1}
ALL_READY = {"short": READY, "long": READY, "forever": READY}


def test_an_idle_replica_is_due_after_its_ttl_and_never_if_that_is_0(idle: IdleReplicas) -> None:
    due = {now: list(idle.due(ALL_READY, NONE, TTLS, now)) for now in (1000.0, 1009.9, 1010.0, 1100.0)}
    assert due == {1000.0: [], 1009.9: [], 1010.0: ["short"], 1100.0: ["long"]}


def test_the_ttl_counts_from_the_end_of_the_last_request(idle: IdleReplicas) -> None:
    idle.due(ALL_READY, NONE, TTLS, 0)
    idle.used("short", 8)
    idle.used("forever", 8)
    assert idle.due(ALL_READY, NONE, TTLS, 17) == []
    assert idle.due(ALL_READY, NONE, TTLS, 18) == ["short"]


def test_a_busy_replica_is_not_due_however_long_its_request_takes(idle: IdleReplicas) -> None:
    idle.due(ALL_READY, NONE, TTLS, 0)
    assert idle.due(ALL_READY, ONLY_SHORT, TTLS, 50) == []
    idle.used("short", 51)
    assert idle.due(ALL_READY, NONE, TTLS, 60) == []
    assert idle.due(ALL_READY, NONE, TTLS, 61) == ["short"]


def test_what_a_request_asks_for_does_not_stop_a_busy_replica(idle: IdleReplicas) -> None:
    idle.used("short", 5, keep_alive=0)
    assert idle.due(ALL_READY, ONLY_SHORT, TTLS, 100) == []
    assert idle.due(ALL_READY, NONE, TTLS, 100) == ["short"]


def test_a_caller_cannot_take_a_replica_away_from_others(idle: IdleReplicas) -> None:
    idle.used("short", 0, "ann")
    idle.used("forever", 0, "ann")
    for replica in ("short", "forever", "long"):
        idle.used(replica, 4, "bob", keep_alive=0)
        idle.used(replica, 5, "bob", keep_alive=0)
    assert idle.due(ALL_READY, NONE, TTLS, 5) == ["long"]
    assert idle.due(ALL_READY, NONE, TTLS, 9.9) == []
    assert idle.due(ALL_READY, NONE, TTLS, 10) == ["short"]
    idle.used("forever", 20, "ann", keep_alive=0)
    assert "forever" not in idle.due(ALL_READY, NONE, TTLS, 10_000)


def test_a_replica_that_became_ready_without_any_request_has_its_whole_ttl(idle: IdleReplicas) -> None:
    idle.used("short", 0)
    idle.due({"short": ReplicaState.STOPPED}, NONE, TTLS, 5)
    assert idle.due({"short": READY}, NONE, TTLS, 50) == []
    assert idle.due({"short": READY}, NONE, TTLS, 60) == ["short"]


def test_a_replica_that_is_loaded_again_at_once_has_its_whole_ttl(idle: IdleReplicas) -> None:
    idle.due(ALL_READY, NONE, TTLS, 0)
    assert idle.due(ALL_READY, NONE, TTLS, 10) == ["short"]
    assert idle.due(ALL_READY, NONE, TTLS, 11) == []
    assert idle.due(ALL_READY, NONE, TTLS, 21) == ["short"]


def test_a_sleeping_replica_is_not_due(idle: IdleReplicas) -> None:
    idle.due(ALL_READY, NONE, TTLS, 0)
    assert idle.due({"short": ReplicaState.SLEEPING}, NONE, TTLS, 50) == []


def test_a_request_may_say_for_how_long_it_wants_the_replica_kept(idle: IdleReplicas) -> None:
    idle.used("short", 0, keep_alive=30)
    idle.used("forever", 0, keep_alive=0)
    idle.used("long", 0, keep_alive=math.inf)
    assert idle.due(ALL_READY, NONE, TTLS, 29) == ["forever"]
    assert idle.due(ALL_READY, NONE, TTLS, 1000) == ["short"]


def test_the_next_request_brings_the_ttl_back(idle: IdleReplicas) -> None:
    idle.used("short", 0, keep_alive=math.inf)
    idle.used("forever", 0, keep_alive=5)
    idle.used("short", 20)
    idle.used("forever", 4)
    assert idle.due(ALL_READY, NONE, TTLS, 29) == []
    assert idle.due(ALL_READY, NONE, TTLS, 90) == ["short"]


def test_a_replica_that_stopped_starts_with_its_ttl_again(idle: IdleReplicas) -> None:
    idle.used("short", 0, keep_alive=1000)
    idle.due({**ALL_READY, "short": ReplicaState.STOPPED}, NONE, TTLS, 1)
    idle.due(ALL_READY, NONE, TTLS, 2)
    assert idle.due(ALL_READY, NONE, TTLS, 12) == ["short"]


class Granted:
    """A request of another process, which does not count in the loads of this one yet."""

    def granted(self) -> bool:
        return True

    def refused(self, error: Exception, joined_load: bool = False) -> None:
        raise error


async def test_a_request_counts_from_its_grant(tmp_path: Path) -> None:
    async with scripted_engines() as start, served(Launches((await start()).url), tmp_path, ttl=0.001) as gateway:
        engines = gateway.gateway.engines
        engines._tasks.cancel()  # the sweeps, or one of them might stop the engine first
        assert (await gateway.ask()).status == 200
        queue, host = engines.queues["m"], engines._hosts["local"]
        queue.submit(Ticket(id="1", replica="m@m"), Granted())
        idle_since = queue.now()
        await until(lambda: queue.now() > idle_since + 0.01)
        host.release_idle()
        host.rest(["m@m"])
        assert queue.replica_state("m@m") is READY
        queue.served("m@m")
        host.rest(["m@m"])
        assert queue.replica_state("m@m") is not READY


@pytest.mark.parametrize(("path", "empty"), [("/api/chat", {"messages": []}), ("/api/generate", {})])
async def test_keep_alive_0_unloads_a_model_and_loads_none_for_that(
    path: str, empty: Mapping[str, object], tmp_path: Path
) -> None:
    async with scripted_engines() as start:
        launcher = Launches((engine := await start()).url)
        async with served(launcher, tmp_path) as gateway:

            async def unload() -> Mapping[str, object]:
                reply = await gateway.ask(gateway.post(dict(empty), path=path, keep_alive=0))
                said: Mapping[str, object] = msgspec.json.decode(reply.body)
                assert (reply.status, said["model"], said["done"], said["done_reason"]) == (200, "m", True, "unload")
                return said

            first = await unload()
            assert not launcher.lines
            assert (await gateway.ask()).status == 200
            assert (await unload()).keys() == first.keys()
            assert sum(b"/v1/chat/completions" in call.request_line for call in engine.calls) == 2
            await gateway.until(lambda: gateway.gateway.engines.queues["m"].running() == {})
            await unload()
            assert len(launcher.lines) == 1
            await gateway.quiet()
