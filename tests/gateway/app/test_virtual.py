"""A gateway on a virtual clock, whose engines are played."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from enginehouse import (
    Body,
    ConfigError,
    InferenceRequest,
    RequestError,
    ServedModel,
    VirtualBackend,
    VirtualEngines,
    VirtualGateway,
    VirtualRequest,
    VirtualSettings,
)
from tests.support.virtual_time import Run, in_virtual_time

__all__ = ["in_virtual_time"]

TWO_MODELS = """
[models.a]
driver = "sim"
[models.b]
driver = "sim"
"""


class Engines(VirtualEngines):
    """Notes what happens; the test answers. ``limit``: requests at once, as every engine reports."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.serving: list[VirtualRequest] = []
        self.refused: list[RequestError] = []
        self.loads: list[tuple[float, str]] = []

    def probe(self, backend: VirtualBackend) -> tuple[list[ServedModel], int | None]:
        return [ServedModel(model) for model in backend.models or ("m",)], self.limit

    def serve(self, request: VirtualRequest) -> None:
        self.serving.append(request)

    def refuse(self, request: VirtualRequest, error: RequestError) -> None:
        self.refused.append(error)

    async def load(self, backend: VirtualBackend) -> None:
        await asyncio.sleep(5)
        self.loads.append((asyncio.get_running_loop().time(), backend.name))

    async def stop(self, backend: VirtualBackend) -> None:
        await asyncio.sleep(1)

    @property
    def places(self) -> list[str]:
        return [request.route.chosen.backend for request in self.serving if request.route is not None]


def asks(model: str) -> InferenceRequest:
    return InferenceRequest("/v1/completions", [], b"", Body(model=model, prompt=[1, 2, 3]))


async def opened(engines: Engines, settings: VirtualSettings) -> VirtualGateway:
    gateway = settings.gateway(engines)
    await gateway.open()
    return gateway


@pytest.mark.parametrize(
    ("strategy", "places"),
    [("round_robin", ["engine", "engine-2", "engine-3", "engine"]), ("priority_only", ["engine"] * 4)],
)
def test_the_configured_strategy_decides(in_virtual_time: Run, strategy: str, places: list[str]) -> None:
    async def scenario() -> None:
        engines = Engines()
        settings = VirtualSettings(values=(("routing.strategy", strategy),), instances=3)
        gateway = await opened(engines, settings)
        for _ in places:
            gateway.submit(asks("m"))
        assert engines.places == places

    in_virtual_time(scenario())


def test_requests_above_an_engines_limit_wait_for_the_end_of_others(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        engines = Engines(limit=2)
        gateway = await opened(engines, VirtualSettings())
        requests = [gateway.submit(asks("m")) for _ in range(3)]
        assert engines.serving == requests[:2]
        assert gateway.waiting == 1
        requests[0].answered()
        requests[0].ended()
        assert engines.serving == requests

    in_virtual_time(scenario())


def test_a_swap_takes_the_time_of_its_stop_and_its_load(in_virtual_time: Run, tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text(TWO_MODELS)

    async def scenario() -> None:
        engines = Engines()
        gateway = await opened(engines, VirtualSettings(file=file))
        gateway.submit(asks("a"))
        gateway.submit(asks("b"))
        await asyncio.sleep(5.5)
        assert engines.places == ["a"]
        engines.serving[0].answered()
        engines.serving[0].ended()
        await asyncio.sleep(7)
        assert engines.places == ["a", "b"]
        assert engines.loads == [(5.0, "a"), (11.5, "b")]
        assert gateway.swaps == 2

    in_virtual_time(scenario())


def test_what_the_gateway_refuses_reaches_no_engine(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        engines = Engines()
        gateway = await opened(engines, VirtualSettings())
        gateway.submit(asks("unknown"))
        assert [error.code for error in engines.refused] == ["model_not_found"]
        assert not engines.serving

    in_virtual_time(scenario())


def test_an_idle_engine_stops_after_its_ttl(in_virtual_time: Run, tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text(TWO_MODELS.replace("[models.b]", 'ttl = "30s"\npreload = true\n[models.b]'))

    async def scenario() -> None:
        engines = Engines()
        gateway = await opened(engines, VirtualSettings(file=file))
        assert engines.loads == [(5.0, "a")]
        await asyncio.sleep(40)
        gateway.submit(asks("a"))
        await asyncio.sleep(6)
        assert [name for _, name in engines.loads] == ["a", "a"]
        gateway.close()

    in_virtual_time(scenario())


def test_values_may_be_tables_and_names_with_dots(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text('[models."a.b"]\ndriver = "sim"\n[routing.weights]\npriority = 50\nload = 30\nlatency = 20\n')
    values = (('models."a.b".ttl', "10s"), ("routing.weights", "{priority = 0, load = 100, latency = 0}"))
    config = VirtualSettings(file=file, values=values, instances=3).load().config
    assert config.models["a.b"].ttl == 10
    assert config.models["a.b"].replicas == 3
    assert config.routing.weights.load == 100


def test_backends_are_repeated_in_their_order_for_each_set_of_models(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    backend = '[backends.{}]\nurl = "http://x"\nmodels = ["{}"]\n'
    file.write_text("".join(backend.format(name, name[0]) for name in ("a1", "b1", "a2")))
    config = VirtualSettings(file=file, instances=3).load().config
    assert list(config.backends) == ["a1", "a2", "a1-2", "b1", "b1-2", "b1-3"]


@pytest.mark.parametrize(("key", "value"), [("routing.strateg", "smart"), ("routing.max_retries", "many"), ("", "1")])
def test_a_wrong_key_is_an_error(key: str, value: str) -> None:
    with pytest.raises(ConfigError):
        VirtualSettings(values=((key, value),)).load()
