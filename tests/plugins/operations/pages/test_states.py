"""What operators' pages tell beyond single states: conditions, memory, live requests and figures over time."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from enginehouse.app import Gateway
from enginehouse.config.schema import Config
from enginehouse.domain.backend_status import BackendStatus
from enginehouse.domain.replica import Candidate, Health, ReplicaState
from enginehouse.engines.host_memory import host_memory
from enginehouse.interfaces.swappers import HostedReplica, HostFacts
from enginehouse_operations.pages.live_view import condition
from tests.support import plain_httpx
from tests.support.backend_status import backend_status
from tests.support.installed_plugins import installed_plugins

NOW = 1000.0
WORDS = [
    (ReplicaState.READY, Health.HEALTHY, 0, False, "ready"),
    (ReplicaState.READY, Health.HEALTHY, 0, True, "draining"),
    (ReplicaState.READY, Health.UNKNOWN, 0, False, "unknown"),
    (ReplicaState.READY, Health.UNHEALTHY, 0, True, "unreachable"),
    (ReplicaState.STARTING, Health.HEALTHY, 3, False, "loading"),
    (ReplicaState.STOPPED, Health.HEALTHY, 0, False, "stopped"),
    (ReplicaState.STOPPED, Health.HEALTHY, 1, False, "waiting for room"),
    (ReplicaState.SLEEPING, Health.HEALTHY, 0, False, "sleeping"),
    (ReplicaState.SLEEPING, Health.HEALTHY, 1, False, "waiting for room"),
    (ReplicaState.STOPPING, Health.HEALTHY, 0, False, "stopping"),
    (ReplicaState.FAILED, Health.HEALTHY, 0, False, "failed"),
]


def backend(health: Health, *, draining: bool = False) -> BackendStatus:
    return backend_status(health=health, draining=draining, last_error="no route", last_error_at=990.0)


def replica(state: ReplicaState, *, wake_s: float = 0.0) -> Candidate:
    return Candidate(model="m", backend="b", replica="m@b", state=state, wake_s=wake_s)


@pytest.mark.parametrize(("state", "health", "waiting", "draining", "word"), WORDS)
def test_one_word_is_true_of_engine_and_backend(
    state: ReplicaState, health: Health, waiting: int, draining: bool, word: str
) -> None:
    found = condition(
        replica(state), backend(health, draining=draining), waiting=waiting, changed_at=(1.0, 2.0), now=NOW
    )
    assert found.word == word
    assert (found.why == "no route") is (word in ("failed", "unreachable", "unknown"))


@pytest.mark.parametrize(("wake_s", "progress"), [(20.0, 0.5), (5.0, 0.99), (0.0, None)])
def test_a_load_has_the_progress_of_the_last_one(wake_s: float, progress: float | None) -> None:
    found = condition(
        replica(ReplicaState.STARTING, wake_s=wake_s),
        backend(Health.HEALTHY),
        waiting=0,
        changed_at=(NOW - 10, None),
        now=NOW,
    )
    assert (found.progress, found.since) == (progress, NOW - 10)


def test_memory_is_declared_else_measured_else_estimated() -> None:
    names = ("measured", "estimated", "unknown", "asleep", "kept")
    hosted = {name: HostedReplica(replica=name, model=name) for name in names}
    hosted["declared"] = HostedReplica(replica="declared", model="declared", memory=5)
    facts = HostFacts(
        name="h",
        memory=100,
        replicas=hosted,
        measured={"declared": 9, "measured": 7, "asleep": 50, "kept": 20},
        asleep={"asleep": 1},
        estimated={"measured": 3, "estimated": 2},
    )
    running = {"declared": ReplicaState.READY, "asleep": ReplicaState.SLEEPING, "unknown": ReplicaState.READY}
    running["kept"] = ReplicaState.SLEEPING
    memory = host_memory(facts, running)
    assert memory.replicas == {"declared": 5, "measured": 7, "estimated": 2, "asleep": 50, "kept": 20}
    assert (memory.used, memory.budget) == (26, 100)


@pytest.fixture
async def client() -> httpx.AsyncClient:
    served = Gateway(
        msgspec.convert({"models": {"m": {"driver": "sim", "memory": 2**30}}}, Config), installed_plugins()
    )
    served.build_hosts()
    served.every_second.sample()
    return plain_httpx.AsyncClient(transport=httpx.ASGITransport(served.application), base_url="http://localhost")


async def test_the_status_has_conditions_and_memory(client: httpx.AsyncClient) -> None:
    status = (await client.get("/api/status")).json()
    assert status["replicas"][0]["condition"]["word"] == "stopped"
    assert status["replicas"][0]["memory"] == 2**30
    assert [(each["host"], each["used"]) for each in status["hosts"]] == [("local", 0)]


async def test_figures_over_time_are_read_over_http(client: httpx.AsyncClient) -> None:
    answer = (await client.get("/api/series", params={"metric": "requests"})).json()
    assert (answer["metric"], answer["unit"], answer["step"]) == ("requests", "1/s", 1)
    assert [(each["labels"], each["values"][-1]) for each in answer["series"]] == [({}, 0.0)]
    assert isinstance(answer["from"], float)


@pytest.mark.parametrize("query", ["", "?metric=nonsense", "?metric=queue&by=host", "?metric=queue&since=soon"])
async def test_a_wrong_question_about_figures_is_refused(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/api/series{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    "target",
    [
        "/api/series?metric=requests&by=&since=&step=",
        "/api/history?limit=&model=&key=&status=&after=",
        "/api/events/past?since=&limit=",
        "/api/decisions?limit=",
        "/api/audit?since=&limit=",
    ],
)
async def test_a_field_of_the_query_that_is_empty_is_as_if_it_were_not_there(
    client: httpx.AsyncClient, target: str
) -> None:
    assert (await client.get(target)).status_code == 200


async def test_a_request_that_is_not_live_is_not_found(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/requests/none")).status_code == 404
