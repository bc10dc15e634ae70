"""A place that is lost before the engine has started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from enginehouse_ray import RayConfig, RayLauncher, RayPlacement, launcher
from enginehouse_ray.cluster import ActorLost, Cluster
from enginehouse_ray.messages import Node

from enginehouse.errors import LoadFailed
from enginehouse.launchers import EngineNeeds, Place

NODE = Node("n", "10.0.0.2", "n", {}, {"CPU": 4.0}, {"CPU": 4.0})


class DyingCluster(Cluster):
    """A cluster that places ``dies`` actors on a node that has died."""

    def __init__(self, dies: int) -> None:
        super().__init__("", "")
        self.dies = dies
        self.created: list[Sequence[str]] = []
        self.killed: list[Sequence[str]] = []

    async def connect(self) -> None:
        """It is connected."""

    async def nodes(self) -> Sequence[Node]:
        return [NODE]

    async def find(self, name: str) -> bool:
        return False

    async def create(
        self, names: Sequence[str], owner: str, bundle: Mapping[str, float], options: Mapping[str, Any]
    ) -> None:
        self.created.append(names)

    async def kill(self, names: Sequence[str]) -> None:
        self.killed.append(names)

    async def ask(self, name: str, method: str, *arguments: Any) -> Any:
        if len(self.created) <= self.dies:
            raise ActorLost("The actor died unexpectedly before finishing this task.")
        return "n" if method == "node" else [8000]


def placed(cluster: DyingCluster, waits: Callable[[str], None]) -> Place:
    made = RayLauncher(RayConfig())
    made._cluster = cluster
    return asyncio.run(made.place("m", EngineNeeds(options=RayPlacement()), waits))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_PAUSE_S", 0.0)


def test_another_place_is_sought() -> None:
    said: list[str] = []
    cluster = DyingCluster(dies=2)
    assert placed(cluster, said.append).port == 8000
    assert (
        said
        == ["its place was lost, another one is wanted: The actor died unexpectedly before finishing this task."] * 2
    )
    assert len(cluster.killed) == 5, "before each try, and after each that failed"


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_DYING_S", 0.0)
    with pytest.raises(LoadFailed, match="The place of 'm' was lost: The actor died"):
        placed(DyingCluster(dies=10**6), lambda why: None)
