"""A whole gateway between scripted engines and raw clients, all in one event loop."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream import connection as connections
from tests.support.installed_plugins import installed_plugins
from tests.support.launched_engine import Launch, LaunchedEngine
from tests.support.model_engine import ModelEngine, StartModelEngine, start_model_engine
from tests.support.scripted_engine import StartEngine, scripted_engines
from tests.support.served_gateway import HasUrl, OpenGateway, ServedBy, ServedGateway, configure, prepare, serve
from tests.support.web_sockets import Dial, StartSocketEngine, dialled, socket_engines

_WITH_WORKERS = frozenset(
    f"test_{topic}"
    for topic in (
        "endpoints",
        "engine_errors",
        "error_forms",
        "filters",
        "history",
        "limited",
        "mirror_figures",
        "observer_figures",
        "operations",
    )
)
_ON_BOTH_LOOPS = {f"test_{topic}.py" for topic in ("aborts", "pressure", "progress", "streaming", "tls")}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop where there is one, as the gateway runs on; asyncio's too for tests that depend on the loop."""
    if importlib.util.find_spec("uvloop") is None:
        return {"asyncio": asyncio.new_event_loop}
    import uvloop

    if item.path.name not in _ON_BOTH_LOOPS:
        return {"uvloop": uvloop.new_event_loop}
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def engine() -> AsyncIterator[StartEngine]:
    """Starts scripted engines."""
    async with scripted_engines() as start:
        yield start


@pytest.fixture
async def model_engine() -> AsyncIterator[StartModelEngine]:
    """Starts engines whose streams can be continued: they stream what one model says."""
    engines: list[ModelEngine] = []

    async def start() -> ModelEngine:
        engines.append(await start_model_engine())
        return engines[-1]

    yield start
    for each in engines:
        await each.close()


@pytest.fixture
async def socket_engine() -> AsyncIterator[StartSocketEngine]:
    """Starts engines that speak WebSocket."""
    async with socket_engines() as start:
        yield start


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Opens WebSockets of a gateway: ``await dial(gateway, "/upstream/m/x")``."""
    async with dialled() as dial:
        yield dial


@pytest.fixture
def launched() -> Launch:
    """Makes a backend of a gateway one that the gateway launches: ``launched(gateway, "a", concurrency=1)``."""
    return LaunchedEngine


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round trip may take longer than the gateway gives a stale connection to show itself."""
    monkeypatch.setattr(connections, "_STALE_WITHIN_S", 60.0)


@pytest.fixture(scope="session")
def registry() -> Registry:
    return installed_plugins()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that do not look into the gateway also run with two workers."""
    if "served_by" in metafunc.fixturenames:
        module = metafunc.module.__name__.rpartition(".")[2]
        served_by = ["gateway", *(["workers"] if module in _WITH_WORKERS else [])]
        metafunc.parametrize("served_by", served_by, indirect=True)


@pytest.fixture
def served_by(request: pytest.FixtureRequest) -> ServedBy:
    name: ServedBy = request.param
    return name


@pytest.fixture
async def house(served_by: ServedBy, registry: Registry, engine: object) -> AsyncIterator[OpenGateway]:
    """Opens gateways: ``await house(engine, other, routing={...}, clock=...)``. The first of equal engines is asked.

    Afterwards no request may be left, and the loop must not have seen an unhandled exception.
    """
    loop = asyncio.get_running_loop()
    unhandled: list[object] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    opened: list[tuple[ServedGateway, asyncio.Server]] = []

    async def open_gateway(
        *engines: HasUrl,
        clock: Callable[[], float] | None = None,
        backend: Mapping[str, object] | None = None,
        backends: Mapping[str, object] | None = None,
        **sections: object,
    ) -> ServedGateway:
        routing = {"strategy": "smart", **sections.get("routing", {})}  # type: ignore[dict-item]
        config = configure(engines, backend, backends, {**sections, "routing": routing})
        made, server = await serve(prepare(config, registry, clock), served_by)
        opened.append((made, server))
        return made

    yield open_gateway
    for made, server in opened:
        server.close()
        for client in made.clients:
            client.close()
        await made.disconnected()
        await made.quiet()
        assert made.gateway.admission.body_memory.held == 0
        made.relay.close()
    assert not unhandled, unhandled
