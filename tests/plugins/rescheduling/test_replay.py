"""The migrator ``replay``."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginehouse import CannotContinue, ClusterView, EngineClient, InstanceAddress, InstanceView, Migration, RequestView
from enginehouse.testing import check_migrator
from enginehouse_rescheduling.migrators.replay import Replay


class Means:
    """A gateway with four streams at ``a``; the one named ``stuck`` stays."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, str]] = []

    def live(self, instance: str) -> Sequence[RequestView]:
        requests = {"old": 50, "stuck": 10, "young": 20}
        said = [RequestView(id=id, output_tokens=tokens) for id, tokens in requests.items()]
        return [*said, RequestView(id="json", output_tokens=5, stays="its answer follows a grammar")]

    async def move(self, request: str, destination: str) -> None:
        if request == "stuck":
            raise CannotContinue("Backend 'b' is full")
        self.moves.append((request, destination))

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        raise AssertionError("the gateway moves them")

    def moved_by_engine(self, request: str, destination: str) -> None:
        raise AssertionError("the gateway moves them")

    def engine(self, instance: str) -> EngineClient:
        raise NotImplementedError

    def address(self, instance: str) -> InstanceAddress:
        raise NotImplementedError

    def kv_tokens(self, instance: str) -> int:
        return 100


def migration(rule: str, value: float, *requests: str) -> Migration:
    return Migration(
        policy="p", source="a", destination="b", rule=rule, order="SR", value=value, requests=tuple(requests)
    )


@pytest.mark.parametrize(
    ("order", "moved", "refused"),
    [
        (migration("NUM_REQ", 2), ("young",), {"stuck": "Backend 'b' is full"}),
        (migration("TOKEN", 70), ("young", "old"), {"stuck": "Backend 'b' is full"}),
        (migration("RATIO", 0.15), (), {"stuck": "Backend 'b' is full"}),
        (migration("NUM_REQ", 1, "old"), ("old",), {}),
    ],
)
async def test_the_chosen_streams_move(order: Migration, moved: tuple[str, ...], refused: dict[str, str]) -> None:
    means, replay = Means(), Replay()
    replay.prepare(means)
    result = await replay.migrate(order)
    assert (result.moved, result.refused) == (moved, refused)
    assert means.moves == [(request, "b") for request in moved]


def test_any_two_engines_will_do() -> None:
    view = ClusterView(now_ms=0, instances=(InstanceView(id="a"), InstanceView(id="b")))
    assert Replay().why_not(migration("NUM_REQ", 1), view) == ""
    check_migrator(Replay)
