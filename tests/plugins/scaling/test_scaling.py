"""Models whose replicas follow their load: in a whole gateway in virtual time, and what guards the scaler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from enginehouse import ReplicaState
from enginehouse.app.service_changes import ModelSizes
from enginehouse.config.schema import Config, HostSettings, ModelSettings, ReplicaRange
from enginehouse.domain.plugin_id import PluginId
from enginehouse.errors import PluginFailed
from enginehouse_kit.scalers import ModelLoad, Scaler, ScaleView, WantedReplicas
from enginehouse_scaling.decide import decide
from enginehouse_sim.virtual import VirtualSettings
from tests.plugins.sim.test_virtual import ANSWER, Engines, opened, submit
from tests.support.changed_config import reconfigure
from tests.support.virtual_time import Run, in_virtual_time

__all__ = ["in_virtual_time"]

SCALED = """
[hosts.local]
max_loads = 4
[models.a]
driver = "sim"
replicas = {{ {} }}
scale_up_wait = "1s"
scale_down_idle = "10s"
concurrency = 1
{}
"""
PLUGIN = PluginId("scaler", "acme", "acme-scaler")
Scenario = Callable[[Engines, Any], Awaitable[None]]
Play = Callable[[str, Scenario], None]


@pytest.fixture
def play(in_virtual_time: Run, tmp_path: Path) -> Play:
    """Plays a scenario with a gateway of this configuration, which is ``tmp_path / "enginehouse.toml"``."""

    def play(text: str, scenario: Scenario) -> None:
        file = tmp_path / "enginehouse.toml"
        file.write_text(text)

        async def whole() -> None:
            engines = Engines(limit=1)
            gateway = await opened(engines, VirtualSettings(file=file))
            await scenario(engines, gateway)
            await gateway.close()

        in_virtual_time(whole())

    return play


def running(gateway: Any) -> list[str]:
    """The backends of ``a`` that are not at rest."""
    candidates = gateway._gateway.fleet.snapshot.candidates("a")
    return [each.backend for each in candidates if each.state is not ReplicaState.STOPPED]


def told(gateway: Any) -> tuple[int, int]:
    [status] = gateway._gateway.services.status()["scaling"]
    return status.replicas, status.wanted


def answer(engines: Engines) -> None:
    for _, connection in engines.serving:
        connection.answer(200, ANSWER)
    engines.serving.clear()


def test_replicas_come_with_requests_that_wait_and_go_when_they_are_not_needed(
    play: Play,
) -> None:
    async def scenario(engines: Engines, gateway: Any) -> None:
        await asyncio.sleep(3)
        assert (engines.loads, told(gateway)) == ([], (0, 0))

        clients = [submit(gateway, "a") for _ in range(2)]
        await asyncio.sleep(14)
        assert [name for _, name in engines.loads] == ["a", "a-2"]
        assert sorted(engines.places) == ["a", "a-2"]
        assert told(gateway) == (2, 2)

        answer(engines)
        await asyncio.sleep(1)
        assert [client.seen for client in clients] == [["answered", (200, "")]] * 2
        await asyncio.sleep(12)
        assert (running(gateway), told(gateway)) == (["a"], (1, 1))
        assert "a-2" not in gateway._gateway.config.backends
        await asyncio.sleep(15)
        assert (running(gateway), told(gateway)) == ([], (0, 0))
        assert submit(gateway, "a").seen == [], "a request for a model without replicas waits for one"
        await asyncio.sleep(7)
        assert engines.places == ["a"]

    play(SCALED.format("min = 0, max = 2", ""), scenario)


def test_the_fewest_replicas_run_from_the_start_and_a_busy_one_stays(play: Play) -> None:
    async def scenario(engines: Engines, gateway: Any) -> None:
        await asyncio.sleep(7)
        assert [name for _, name in engines.loads] == ["a", "a-2"]
        for _ in range(3):
            submit(gateway, "a")
        await asyncio.sleep(60)
        assert sorted(engines.places) == ["a", "a-2", "a-3"], "one more came"
        assert told(gateway) == (3, 3), "none goes while all are busy"
        answer(engines)
        await asyncio.sleep(60)
        assert told(gateway) == (2, 2)

    play(SCALED.format("min = 2, max = 3", ""), scenario)


@pytest.mark.parametrize("preload", ["", "preload = true"])
def test_a_pinned_model_keeps_one_replica(play: Play, preload: str) -> None:
    async def scenario(engines: Engines, gateway: Any) -> None:
        await asyncio.sleep(60)
        assert (running(gateway), told(gateway)) == (["a"], (1, 1))

    play(SCALED.format("min = 0, max = 2", f"pin = true\n{preload}"), scenario)


def test_a_model_that_others_serve_is_only_told_of(play: Play) -> None:
    backend = '[backends.one]\nurl = "http://one"\ndriver = "sim"\nmodels = ["m"]\nconcurrency = 1\n'

    async def scenario(engines: Engines, gateway: Any) -> None:
        for _ in range(2):
            submit(gateway, "m")
        await asyncio.sleep(5)
        assert told(gateway) == (1, 2)

    play(f"{backend}[models.m]\nreplicas = {{ min = 1, max = 3 }}\nscale_up_wait = '1s'\n", scenario)


def test_a_reload_keeps_the_replicas_and_takes_new_limits(play: Play, tmp_path: Path) -> None:
    async def scenario(engines: Engines, gateway: Any) -> None:
        await asyncio.sleep(7)
        text = SCALED.format("min = 1, max = 1", "").replace("[hosts.local]", '[hosts.local]\nlauncher = "virtual"')
        file = tmp_path / "enginehouse.toml"
        file.write_text(text)
        reconfigure(gateway._gateway, VirtualSettings(file=file).load().config)
        await asyncio.sleep(20)
        assert (running(gateway), told(gateway)) == (["a"], (1, 1))
        assert [name for _, name in engines.loads] == ["a", "a-2"], "the first one ran on"

    play(SCALED.format("min = 2, max = 3", ""), scenario)


def test_replicas_keep_their_names_and_hosts_when_their_number_changes() -> None:
    model = ModelSettings(driver="sim", host=["x", "y"], replicas=ReplicaRange(min=0, max=3))
    config = Config(hosts={"x": HostSettings(), "y": HostSettings()}, models={"m": model})
    assert model.backends("m") == {"m": "x"}
    for wanted, places in [(0, "x"), (1, "x"), (2, "xy"), (3, "xyx"), (9, "xyx")]:
        sizes = ModelSizes()
        sizes.wanted = {"m": wanted}
        found = sizes.sized(config).models["m"].backends("m")
        assert "".join(found.values()) == places
        assert list(found) == ["m", "m-2", "m-3"][: len(places)]
    assert list(model.possible_backends("m")) == ["m", "m-2", "m-3"]


class Says(Scaler):
    def __init__(self, plan: Any) -> None:
        self.said = plan

    def plan(self, view: ScaleView) -> Sequence[WantedReplicas]:
        if isinstance(self.said, BaseException):
            raise self.said
        return self.said  # type: ignore[no-any-return]


VIEW = ScaleView(now=0.0, models=(ModelLoad(model="m", replicas=2, least=1, most=3),))


@pytest.mark.parametrize(
    "said",
    [
        KeyError("secret"),
        None,
        3,
        [],
        [4],
        [WantedReplicas(model="n", wanted=1, why="")],
        [WantedReplicas(model="m", wanted=1.5, why="")],  # type: ignore[arg-type]
    ],
)
def test_a_scaler_that_answers_anything_else_is_blamed(said: Any) -> None:
    with pytest.raises(PluginFailed, match="scaler 'acme' of plugin 'acme-scaler'"):
        decide(PLUGIN, Says(said), VIEW)


@pytest.mark.parametrize(("wanted", "gets"), [(0, 1), (1, 1), (3, 3), (9, 3)])
def test_the_limits_of_the_configuration_hold(wanted: int, gets: int) -> None:
    decided = decide(PLUGIN, Says([WantedReplicas(model="m", wanted=wanted, why="so")]), VIEW)["m"]
    assert decided.wanted == gets
    assert decided.why == (
        "so" if wanted == gets else f"so; at {'least' if gets > wanted else 'most'} {gets} are allowed"
    )
