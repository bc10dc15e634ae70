"""A gateway in virtual time, whose engines are played."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from enginehouse import Body, ConfigError, Driver, InferenceRequest
from enginehouse.domain.errors import ShuttingDown
from enginehouse.errors import Unauthorized
from enginehouse_sim import SimDriver
from enginehouse_sim.simulator.replay.played_connection import HttpRequest, PlayedConnection, PlayedModels
from enginehouse_sim.virtual import VirtualClient, VirtualEngines, VirtualGateway, VirtualProcess, VirtualSettings
from tests.support.virtual_time import Run, in_virtual_time

__all__ = ["in_virtual_time"]

TWO_MODELS = """
[models.a]
driver = "sim"
[models.b]
driver = "sim"
"""
ANSWER = b'{"choices":[]}'


class Engines(VirtualEngines):
    """Notes what happens; the test answers. ``limit``: requests at once, as every engine reports."""

    def __init__(self, limit: int = 100) -> None:
        self.limit = limit
        self.serving: list[tuple[str, PlayedConnection]] = []
        self.loads: list[tuple[float, str]] = []

    def connect(self, backend: str, connection: asyncio.Protocol) -> None:
        def serve(transport: PlayedConnection, request: HttpRequest) -> None:
            model = backend if backend in "ab" else "m"
            if (page := PlayedModels([model], 4096, self.limit).page(request.path)) is not None:
                transport.answer(200, page)
            elif request.path == "/instance_status":
                transport.answer(404, b"")
            else:
                self.serving.append((backend, transport))

        connection.connection_made(PlayedConnection(connection, serve, lambda _: None))

    def driver(self, *, bootstraps: bool) -> Driver:
        return SimDriver()

    async def launch(self, process: VirtualProcess) -> None:
        await asyncio.sleep(5)
        self.loads.append((asyncio.get_running_loop().time(), process.backend))

    async def stop(self, process: VirtualProcess) -> None:
        await asyncio.sleep(1)

    @property
    def places(self) -> list[str]:
        return [backend for backend, _ in self.serving]


class Client(VirtualClient):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def answered(self) -> None:
        self.seen.append("answered")

    def ended(self, status: int, code: str) -> None:
        self.seen.append((status, code))


def submit(gateway: VirtualGateway, model: str, key: str = "") -> Client:
    client = Client()
    request = InferenceRequest("/v1/completions", [], b"", Body(model=model, prompt=[1, 2, 3]))
    gateway.submit(request, b'{"model":"%s","prompt":[1]}' % model.encode(), client, key)
    return client


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
            submit(gateway, "m")
            await asyncio.sleep(0.1)
        assert engines.places == places
        await gateway.close()

    in_virtual_time(scenario())


def test_requests_above_an_engines_limit_wait_for_the_end_of_others(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        engines = Engines(limit=2)
        gateway = await opened(engines, VirtualSettings())
        first, *_ = [submit(gateway, "m") for _ in range(3)]
        await asyncio.sleep(1)
        assert len(engines.serving) == 2
        assert gateway.waiting == 1
        engines.serving[0][1].answer(200, ANSWER)
        await asyncio.sleep(1)
        assert first.seen == ["answered", (200, "")]
        assert len(engines.serving) == 3
        await gateway.close()

    in_virtual_time(scenario())


def test_a_swap_takes_the_time_of_its_stop_and_its_load(in_virtual_time: Run, tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text(TWO_MODELS)

    async def scenario() -> None:
        engines = Engines()
        gateway = await opened(engines, VirtualSettings(file=file))
        began = asyncio.get_running_loop().time()
        submit(gateway, "a")
        submit(gateway, "b")
        await asyncio.sleep(5.5)
        assert engines.places == ["a"]
        engines.serving[0][1].answer(200, ANSWER)
        await asyncio.sleep(7)
        assert engines.places == ["a", "b"]
        assert [name for _, name in engines.loads] == ["a", "b"]
        assert [at - began for at, _ in engines.loads] == pytest.approx([5.0, 11.5], abs=0.1)
        assert gateway.counts["swaps"] == 2
        await gateway.close()

    in_virtual_time(scenario())


@pytest.mark.parametrize("force", [False, True])
def test_no_operator_waits_for_an_unload_longer_than_for_the_gateway(
    in_virtual_time: Run, tmp_path: Path, force: bool
) -> None:
    """The engine stops all the same."""
    file = tmp_path / "enginehouse.toml"
    file.write_text(TWO_MODELS)

    async def scenario() -> None:
        gateway = await opened(Engines(), VirtualSettings(file=file))
        within = gateway._gateway
        submit(gateway, "a")
        await asyncio.sleep(6)
        unload = asyncio.ensure_future(within.engines.unload(["a"], force=force))
        await asyncio.sleep(0.5)
        within.end_live()
        with pytest.raises(ShuttingDown):
            await unload
        await asyncio.sleep(60)
        assert not within.engines.running()
        await gateway.close()

    in_virtual_time(scenario())


def test_what_the_gateway_refuses_reaches_no_engine(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        engines = Engines()
        gateway = await opened(engines, VirtualSettings())
        assert submit(gateway, "unknown").seen == [(404, "model_not_found")]
        assert not engines.serving
        await gateway.close()

    in_virtual_time(scenario())


def test_the_limits_of_keys_count(in_virtual_time: Run, tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    key = '[[auth.keys]]\nname = "team"\nkey = "secret"\nrequests_per_minute = 1\n'
    file.write_text(f'[backends.one]\nurl = "http://one"\ndriver = "sim"\n{key}')

    async def scenario() -> None:
        engines = Engines()
        gateway = await opened(engines, VirtualSettings(file=file))
        submit(gateway, "m", "team")
        assert submit(gateway, "m", "team").seen == [(429, "rate_limited")]
        await asyncio.sleep(60)
        assert submit(gateway, "m", "team").seen == []
        with pytest.raises(Unauthorized, match="no key 'other'"):
            submit(gateway, "m", "other")
        await gateway.close()

    in_virtual_time(scenario())


def test_the_everyday_model_comes_back_when_the_big_one_has_been_idle(in_virtual_time: Run, tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    small = TWO_MODELS.replace("[models.b]", 'ttl = "60s"\npreload = "again"\n[models.b]')
    file.write_text(f'{small}ttl = "30s"\n')

    async def scenario() -> None:
        engines = Engines()
        gateway = await opened(engines, VirtualSettings(file=file))
        submit(gateway, "b")
        await asyncio.sleep(7)
        engines.serving[0][1].answer(200, ANSWER)
        await asyncio.sleep(40)
        assert [name for _, name in engines.loads] == ["a", "b", "a"]
        await asyncio.sleep(100)
        assert len(engines.loads) == 3, "its own time to live leaves the host empty for good"
        await gateway.close()

    in_virtual_time(scenario())


def test_an_idle_engine_stops_after_its_ttl(in_virtual_time: Run, tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text(TWO_MODELS.replace("[models.b]", 'ttl = "30s"\npreload = true\n[models.b]'))

    async def scenario() -> None:
        engines = Engines()
        gateway = await opened(engines, VirtualSettings(file=file))
        assert [name for _, name in engines.loads] == ["a"]
        await asyncio.sleep(40)
        submit(gateway, "a")
        await asyncio.sleep(6)
        assert [name for _, name in engines.loads] == ["a", "a"]
        await gateway.close()

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


class TimedEngines(Engines):
    """Answers each request after a second."""

    def connect(self, backend: str, connection: asyncio.Protocol) -> None:
        def serve(transport: PlayedConnection, request: HttpRequest) -> None:
            if (page := PlayedModels(["m"], 4096, self.limit).page(request.path)) is not None:
                transport.answer(200, page)
            elif request.path == "/instance_status":
                transport.answer(404, b"")
            else:
                asyncio.get_running_loop().call_later(1.0, transport.answer, 200, ANSWER)

        connection.connection_made(PlayedConnection(connection, serve, lambda _: None))


def test_an_engine_with_500_requests_at_once_in_front_of_it_stays_as_busy_as_without_a_gateway(
    in_virtual_time: Run,
) -> None:
    async def scenario() -> None:
        gateway = await opened(TimedEngines(limit=8), VirtualSettings())
        clients = [submit(gateway, "m") for _ in range(500)]
        alone = math.ceil(500 / 8) * 1.0
        await asyncio.sleep(alone / 0.98)
        assert [client.seen for client in clients] == [["answered", (200, "")]] * 500
        await gateway.close()

    in_virtual_time(scenario())
