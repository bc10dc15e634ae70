from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

import msgspec
import pytest

from enginehouse.domain.errors import GatewayError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.rescheduling import RequestView
from enginehouse_kit.gateway_client import GatewayClient
from enginehouse_kit.rescheduling import ClusterView, Migrated, Migration, Plan, ReschedulingPolicy
from enginehouse_rescheduling.commands import RemoteRescheduler, _run
from enginehouse_rescheduling.planner import Planner, RecentMoves
from tests.support.cluster_views import instance, view

T = TypeVar("T")


class FarGateway:
    """A gateway with two streams at ``a``; those in ``staying`` cannot move."""

    def __init__(self, *staying: str) -> None:
        self.staying = staying
        self.asked: set[tuple[tuple[str, ...], str]] = set()
        requests = tuple(RequestView(id=name, prompt_tokens=10, output_tokens=1) for name in "rs")
        self.view = view(instance("a", requests=requests), instance("b"))

    def get(self, path: str) -> bytes:
        assert path == "/api/cluster"
        return msgspec.json.encode(self.view)

    def read(self, answer: bytes, type: type[T]) -> T:
        return GatewayClient("http://far").read(answer, type)

    def post(self, *path: str, query: str = "", body: object = None, timeout: float = 0) -> bytes:
        assert isinstance(body, dict)
        self.asked.add((path, body["to"]))
        if path[2] in self.staying:
            raise GatewayError("it is being moved already")
        return b"{}"


class Moves(ReschedulingPolicy):
    def __init__(self, **fields: Any) -> None:
        values = {"rule": "NUM_REQ", "order": "FCR", "value": -1, **fields}
        self._migration = Migration(policy="p", source="a", destination="b", **values)

    def plan(self, view: ClusterView) -> Plan:
        return Plan(migrations=(self._migration,))


def rescheduler(gateway: FarGateway, told: list[Migrated], **fields: Any) -> RemoteRescheduler:
    policy = (PluginId("rescheduling_policy", "p", "test"), Moves(**fields))
    return RemoteRescheduler(
        gateway,
        Planner([policy]),
        RecentMoves(2),
        timeout=5,
        on_end=lambda _, migrated: told.append(migrated),
    )


@pytest.fixture
def executor() -> Any:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_the_gateway_is_asked_to_move_each_request(executor: ThreadPoolExecutor) -> None:
    gateway, told = FarGateway("s"), list[Migrated]()
    rescheduler(gateway, told).round(executor)

    assert gateway.asked == {(("api", "requests", name, "move"), "b") for name in "rs"}
    assert told == [Migrated(moved=("r",), refused={"s": "it is being moved already"})]


@pytest.mark.parametrize("fields", [{"value": 1}, {"requests": ("r",), "value": 1}])
def test_requests_are_selected_or_named(executor: ThreadPoolExecutor, fields: dict[str, Any]) -> None:
    told: list[Migrated] = []
    rescheduler(FarGateway(), told, **fields).round(executor)

    assert told == [Migrated(moved=("r",))]


def test_instances_rest_between_rounds(executor: ThreadPoolExecutor) -> None:
    told: list[Migrated] = []
    it = rescheduler(FarGateway(), told, value=1)
    it.round(executor)
    it.round(executor)

    assert len(told) == 1


def test_an_answer_that_is_no_view_is_an_error_of_the_gateway(executor: ThreadPoolExecutor) -> None:
    gateway = FarGateway()
    gateway.get = lambda path: b"<html>"  # type: ignore[method-assign]
    with pytest.raises(GatewayError, match="does not answer as a gateway does"):
        rescheduler(gateway, []).round(executor)


def test_a_gateway_that_does_not_answer_delays_no_other() -> None:
    slow, quick, answers, rounds = FarGateway(), FarGateway(), Event(), list[str]()

    def wait(path: str) -> bytes:
        assert answers.wait(10)
        raise GatewayError("gone")

    def look(path: str) -> bytes:
        rounds.append(path)
        if len(rounds) == 3:
            answers.set()
            raise KeyboardInterrupt
        return msgspec.json.encode(quick.view)

    slow.get, quick.get = wait, look  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        _run([rescheduler(slow, []), rescheduler(quick, [])], 0.0)
    assert len(rounds) == 3


def test_one_round_of_each_gateway_tells_what_failed() -> None:
    broken, told = FarGateway(), list[Migrated]()

    def refuse(path: str) -> bytes:
        raise GatewayError("gone")

    broken.get = refuse  # type: ignore[method-assign]
    with pytest.raises(GatewayError, match="gone"):
        _run([rescheduler(broken, []), rescheduler(FarGateway(), told)], None)
    assert told == [Migrated(moved=("r", "s"))]
