"""The migrator ``replay``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from enginehouse.drivers import EngineClient
from enginehouse.errors import CannotContinue
from enginehouse.rescheduling import InstanceAddress, RequestView
from enginehouse_kit.rescheduling import ClusterView, InstanceView, Migration
from enginehouse_kit.testing import check_migrator
from enginehouse_rescheduling.migrators import Replay


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


async def test_a_migration_that_selects_no_stream_says_so() -> None:
    replay = Replay()
    replay.prepare(Means())
    assert (await replay.migrate(migration("RATIO", 0.05))).found_none


class SlowMeans(Means):
    """Counts the streams that move together, each for several turns of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.moving = self.most = 0

    async def move(self, request: str, destination: str) -> None:
        self.moving += 1
        self.most = max(self.most, self.moving)
        for _ in range(3):
            await asyncio.sleep(0)
        self.moving -= 1
        await super().move(request, destination)


async def test_so_many_move_at_once() -> None:
    means, replay = SlowMeans(), Replay(Replay.Config(at_once=2))
    replay.prepare(means)
    names = tuple(f"r{number}" for number in range(7))
    assert (await replay.migrate(migration("NUM_REQ", 7, *names))).moved == names
    assert means.most == 2


def test_any_two_engines_will_do() -> None:
    view = ClusterView(now_ms=0, instances=(InstanceView(id="a"), InstanceView(id="b")))
    assert Replay().why_not(migration("NUM_REQ", 1), view) == ""
    check_migrator(Replay)
