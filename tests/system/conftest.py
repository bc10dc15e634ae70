"""Real gateways in front of real engine processes.

Starting a gateway takes longer than most of these tests, so the tests of a module share one, which is given the
configuration of each test in turn. Tests that stop it, or that need its environment, have one to themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from enginehouse.config.environment import TEST_WORKERS
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.held_port import held_port
from tests.support.operated_gateway import (
    ADMIN_KEY,
    MARK,
    OperatedGateway,
    Serve,
    ServeAlone,
    Stage,
    reconfigured,
    started_by,
)
from tests.support.parallel import all_of

_DECIDE_THEMSELVES = ("test_real_upgrades", "test_take_over", "test_tokens", "test_usage", "test_workers")
_LOOK_AT_ONE_PROCESS = (
    "test_default",
    "test_hand_over",
    "test_hostile_requests",
    "test_kills",
    "test_several_gateways",
)
_EXPECT_ONE_MEMORY = ("test_kv_events", "test_vllm_kv_events", "test_remembered", "test_routing")
_ALONE = frozenset((*_DECIDE_THEMSELVES, *_LOOK_AT_ONE_PROCESS, *_EXPECT_ONE_MEMORY, "test_moved_streams"))
"""Modules whose gateways have no workers unless their tests say so."""
_STARTERS = frozenset({"serve_alone", "shared_gateway"})
_LIMIT_S = 300
"""Processes start many times slower on a busy machine."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(_LIMIT_S))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of gateways with two workers too, under ``slow``."""
    module = metafunc.module.__name__.rpartition(".")[2]
    starts = hasattr(metafunc.module, "RunningGateway") or not _STARTERS.isdisjoint(metafunc.fixturenames)
    if starts and module not in _ALONE and ".docs." not in metafunc.module.__name__:
        counts = [pytest.param(1, id="alone"), pytest.param(2, id="workers", marks=pytest.mark.slow)]
        metafunc.parametrize("gateway_workers", counts, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def gateway_workers(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of workers that the gateways of a module have, unless their tests say otherwise."""
    count = getattr(request, "param", 1)
    with pytest.MonkeyPatch.context() as patch:
        if count > 1:
            patch.setenv(TEST_WORKERS, str(count))
        yield count


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, str]]:
    """The gateway of a module, and the mark of its engines."""
    mark = str(tmp_path_factory.mktemp("shared"))
    with RunningGateway("", {MARK: mark}, key=ADMIN_KEY) as gateway:
        yield gateway, mark
    assert_none_left(mark)


@pytest.fixture
def serve(shared_gateway: tuple[RunningGateway, str], pool: ThreadPoolExecutor) -> Iterator[Serve]:
    """Have the module's gateway serve a configuration: ``serve(table("a"))``."""
    process, mark = shared_gateway
    with reconfigured(OperatedGateway(process, pool, mark)) as reconfigure:
        yield reconfigure


@pytest.fixture
def serve_alone(tmp_path: Path, pool: ThreadPoolExecutor) -> Iterator[ServeAlone]:
    """Open gateways of the test's own. When they have stopped, none of their engines must be left."""
    mark = str(tmp_path)
    with ExitStack() as stack:

        def start(config: str | None, **env: str) -> OperatedGateway:
            process = stack.enter_context(RunningGateway(config, {MARK: mark, **env}, key=ADMIN_KEY))
            return stack.enter_context(OperatedGateway(process, pool, mark))

        yield start
    assert_none_left(mark)


def assert_none_left(mark: str) -> None:
    left = started_by(mark)
    for pid in left:
        psutil.Process(pid).kill()
    assert not left, "the gateways left engines behind"


@pytest.fixture
def next_stage(tmp_path: Path) -> Iterator[Stage]:
    """Another one, which opens later."""
    folder = tmp_path / "next"
    folder.mkdir()
    stage = Stage(folder)
    yield stage
    stage.open()


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    with plain_httpx.Client() as client:
        yield client


@pytest.fixture(scope="session")
def three_engines() -> Iterator[dict[str, SimEngine]]:
    """Engines ``a``, ``b`` and ``c`` that all serve ``shared``, and one model each that only they have."""
    a = SimEngine("shared", "only-a", vision=True, tools=False, context_length=200)
    b = SimEngine("shared", "only-b", vision=False, tools=True, context_length=200)
    c = SimEngine("shared", "only-c", vision=False, tools=False, context_length=100_000)
    with all_of(a, b, c):
        yield {"a": a, "b": b, "c": c}


@pytest.fixture
def engines(three_engines: dict[str, SimEngine]) -> Iterator[dict[str, SimEngine]]:
    """The three engines, with nothing left over from another test."""
    for engine in three_engines.values():
        engine.clear()
    yield three_engines
    for engine in three_engines.values():
        engine.clear()


@pytest.fixture
def free_port() -> Iterator[int]:
    with held_port() as port:
        yield port
