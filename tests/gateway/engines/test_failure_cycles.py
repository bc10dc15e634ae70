"""Probes, figures, loads and unloads that fail leave nothing to the garbage collector, which runs seldom."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from enginehouse.app.status_puller import StatusPuller
from enginehouse.backends import LoadingBackend
from enginehouse.config.schema import CheckSettings, ModelSettings
from enginehouse.drivers import EngineClient, LoadedModel, ServedModel, SupportsLoading
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.loads import load
from enginehouse.engines.probing import HealthCheck, Prober
from enginehouse.errors import LoadFailed, UpstreamError
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.driver_support import support_of
from enginehouse.rescheduling import InstanceStatus
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.log_ring import LogRing
from enginehouse_remote.server import RemoteLoad, RemoteServer
from tests.gateway.engines.test_load_request import Queue
from tests.gateway.engines.test_prober import Sink
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver, running_engines
from tests.support.garbage import left_behind, without_collector
from tests.support.host_launchers import launches
from tests.support.virtual_time import Run

Fail = Callable[[], Awaitable[object]]


class Broken(ScriptedDriver, SupportsLoading):
    """Fails at everything. A failure that it kept would refer to it."""

    async def healthy(self, engine: EngineClient) -> bool:
        raise UpstreamError("it is broken")

    async def models(self, engine: EngineClient) -> list[ServedModel]:
        raise UpstreamError("it is broken")

    async def concurrency(self, engine: EngineClient) -> int | None:
        raise UpstreamError("it is broken")

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        raise UpstreamError("it is broken")

    async def load(self, engine: EngineClient, model: str) -> None:
        raise UpstreamError("it is broken")

    async def unload(self, engine: EngineClient, model: str) -> None:
        raise UpstreamError("it is broken")

    async def loaded(self, engine: EngineClient) -> list[LoadedModel]:
        return []


async def probe() -> None:
    assert await HealthCheck(Broken()).problem(FakeClient({}), 5.0)


async def late_probe() -> None:
    driver = ScriptedDriver()
    driver.delay = 60.0
    assert await HealthCheck(driver).problem(FakeClient({}), 5.0)


async def discovery() -> None:
    prober = Prober(cast(Fleet, Sink()), CheckSettings(interval=10, timeout=4), lambda: 0.5)
    prober.add("a", support_of(Broken()), FakeClient({}), is_healthy=True)
    await prober.first_round()
    await asyncio.sleep(60)
    prober.close()
    await asyncio.sleep(1)


async def status() -> None:
    context = running_engines({"a": Broken()})
    puller = StatusPuller(lambda: context, print)
    await puller.ask()
    await asyncio.sleep(1)


def supervisor(driver: ScriptedDriver, launcher: FakeLauncher) -> Engine:
    model = ModelSettings(command="engine", start_timeout=60, stop_timeout=7)
    return Engine(
        ManagedReplica("tiny-1", "tiny", model, support_of(driver)), launches(launcher),
        connect=lambda address: FakeClient({}), listener=EngineListener(),
    )  # fmt: skip


async def start() -> None:
    with pytest.raises(LoadFailed):
        await supervisor(Broken(), FakeLauncher()).bring_up()
    await asyncio.sleep(1)


async def late_launch() -> None:
    launcher = FakeLauncher()
    launcher.delay = 1e6
    with pytest.raises(LoadFailed):
        await supervisor(ScriptedDriver(), launcher).bring_up()
    await asyncio.sleep(1)


async def early_exit() -> None:
    driver, launcher = ScriptedDriver(), FakeLauncher()
    driver.verdict = False
    starting = asyncio.ensure_future(supervisor(driver, launcher).bring_up())
    await asyncio.sleep(1)
    launcher.launched[0].end.set_result(1)
    await asyncio.wait({starting})
    starting.exception()
    del starting
    await asyncio.sleep(1)


async def cancelled_start() -> None:
    driver = ScriptedDriver()
    driver.verdict = False
    starting = asyncio.ensure_future(supervisor(driver, FakeLauncher()).bring_up())
    await asyncio.sleep(1)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    del starting
    await asyncio.sleep(1)


def server() -> RemoteServer:
    return RemoteServer(LoadingBackend("one", "http://one", Broken(), lambda _: FakeClient({}), 60.0, lambda *_: None))


async def load_on_a_server() -> None:
    with pytest.raises(UpstreamError):
        await server().load("a", 60.0, LogRing())


async def unload_on_a_server() -> None:
    await RemoteLoad(server(), "a").stop(1.0)


async def refused_load() -> None:
    with pytest.raises(LoadFailed):
        await load(cast(HostQueue, Queue(LoadFailed("no memory"))), "a@a")


@pytest.mark.parametrize(
    "fail",
    [
        probe,
        late_probe,
        discovery,
        status,
        start,
        late_launch,
        early_exit,
        cancelled_start,
        load_on_a_server,
        unload_on_a_server,
        refused_load,
    ],
)
def test_a_failure_leaves_no_cycle(in_virtual_time: Run, fail: Fail) -> None:
    async def scenario() -> None:
        await fail()
        with without_collector():
            await fail()
            assert not left_behind()

    in_virtual_time(scenario())
