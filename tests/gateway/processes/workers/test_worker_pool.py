"""The pool replaces workers, whatever it takes."""

from __future__ import annotations

import errno
import itertools
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from enginehouse.app import Gateway
from enginehouse.app.request_path import PathChange
from enginehouse.config.routing import RoutingSettings
from enginehouse.config.schema import Config, ModelSettings, PluginSettings, ServerSettings
from enginehouse.domain.replica import replica_name
from enginehouse.engines.state_file import StateFile
from enginehouse.interfaces.services import FoundBackend
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.processes.workers.fork_server import NoForkServer
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse_rescheduling.llumnix_load import LlumnixLoad
from tests.support.waiting import until, within
from tests.support.workers_in_loop import WorkersInLoop

FULL = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


class Forks(WorkersInLoop):
    """Forks that fail with the errors of ``failures``, the first one first."""

    def __init__(self, gateway: Gateway, count: int) -> None:
        super().__init__(gateway, count)
        self.failures: list[OSError] = []
        self.attempts = 0

    async def fork(self, number: int) -> tuple[int, socket.socket]:
        self.attempts += 1
        if self.failures:
            raise self.failures.pop(0)
        return await super().fork(number)

    def end(self, number: int) -> None:
        """Have a worker die."""
        self.pool.links[number].close()


@asynccontextmanager
async def pooled(*failures: OSError, config: Config | None = None, folder: Path | None = None) -> AsyncIterator[Forks]:
    gateway = Gateway(config or Config(), load_plugins(PluginSettings()).registry)
    if folder is not None:
        gateway.build_hosts(StateFile(folder))
    forks = Forks(gateway, 2)
    forks.failures[:] = failures
    await within(forks.start())
    try:
        yield forks
    finally:
        await forks.stop()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginehouse.processes.workers.worker_pool._FIRST_PAUSE_S", 0.001)


async def test_a_worker_that_cannot_be_started_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async with pooled() as forks:
        assert forks.pool.serves
        forks.failures[:] = [FULL] * 4
        forks.end(0)
        await until(lambda: not forks.failures and len(forks.pool.links) == 2)
        await until(lambda: all(link.reports.version for link in forks.pool.links.values()))
        assert caplog.text.count("the next attempt follows") == 4
        assert forks.pool._pause[0] == 0.001 * 2**4, "the first one was for a worker that has died young"


async def test_a_start_waits_for_room_too() -> None:
    async with pooled(FULL, FULL, FULL) as forks:
        assert forks.attempts == 5
        assert forks.pool.serves


async def test_nobody_serves_without_a_worker() -> None:
    async with pooled() as forks:
        forks.failures[:] = [FULL] * 20
        forks.end(0)
        forks.end(1)
        await until(lambda: not forks.pool.links)
        assert not forks.pool.serves
        forks.failures.clear()
        await until(lambda: forks.pool.serves)


async def test_the_end_of_the_last_worker_is_told_if_it_is_final() -> None:
    async with pooled() as forks:
        lost: list[bool] = []
        forks.pool.on_lost = lambda: lost.append(True)
        forks.failures[:] = [NoForkServer("killed")] * 2
        forks.end(0)
        await until(lambda: len(forks.failures) == 1)
        assert not lost
        assert forks.pool.serves
        forks.end(1)
        await until(lambda: lost)


async def test_workers_know_what_is_unloaded_before_its_streams_move(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of a model with the sign between models and backends in its name."""
    monkeypatch.setattr("enginehouse.processes.workers.publisher._LOOK_EVERY_S", 1e6)
    launched = ModelSettings(command="engine --port ${port}", memory=1)
    async with pooled(config=Config(models={"a@b": launched, "b": launched}), folder=tmp_path) as forks:
        gateway, replica = forks.pool.gateway, replica_name("a@b", "a@b")
        queue = gateway.relay.context.queues["a@b"]
        assert isinstance(queue, HostQueue)
        queue.note_unload([replica])
        gateway.relay.drains.vacate(replica)
        queues = [worker.queues.by_backend for worker in forks.workers.values()]
        await until(lambda: all(each["a@b"].is_unloaded(replica) for each in queues))


async def test_nothing_is_kept_of_backends_whose_places_were_recalled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pooled() as forks:
        seconds = itertools.count(1)
        monkeypatch.setattr(forks.pool, "_now", lambda: float(next(seconds)))
        for backend in ("gone", "here"):
            forks.pool.recall(backend)
        assert [*forks.pool._recalled] == ["here"]


async def test_requests_go_on_while_a_worker_changes_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    made, wanted = threading.Event(), threading.Event()

    def make(*arguments: Any) -> PathChange:
        made.set()
        assert wanted.wait(20), "the event loop has been held"
        return PathChange(*arguments)

    async with pooled() as forks:
        monkeypatch.setattr("enginehouse.processes.workers.worker.PathChange", make)
        current, workers = forks.pool.gateway.current, list(forks.workers.values())
        current.joined.found = {"new": FoundBackend(url="http://127.0.0.1:9", models=["m"])}
        before = current.version
        current.rejoin()
        await until(made.is_set)
        assert [worker.version for worker in workers] == [before, before]
        wanted.set()
        await until(lambda: all(worker.version == current.version for worker in workers))
        await until(lambda: all(worker.path.fleet.view("new") == current.path.fleet.view("new") for worker in workers))


async def test_a_worker_whose_driver_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    ends, killed = threading.Event(), list[int]()

    def hang(*_: object) -> PathChange:
        ends.wait(20)
        raise AssertionError

    async with pooled(config=Config(server=ServerSettings(worker_timeout=1.0))) as forks:
        monkeypatch.setattr("enginehouse.processes.workers.worker.PathChange", hang)
        monkeypatch.setattr("enginehouse.processes.workers.worker.LONGEST_S", 0.01)
        monkeypatch.setattr(forks, "kill", killed.append)
        forks.pool.gateway.current.joined.found = {"new": FoundBackend(url="http://127.0.0.1:9", models=["m"])}
        forks.pool.gateway.current.rejoin()
        await until(lambda: len(killed) == 2)
        await forks.pool.refresh()  # until then they hear what the owner says
        ends.set()


async def test_a_worker_that_fails_to_change_its_configuration_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no more files")

    async with pooled() as forks:
        current, workers = forks.pool.gateway.current, list(forks.workers.values())
        with monkeypatch.context() as patched:
            patched.setattr("enginehouse.processes.workers.worker.build_drivers", fail)
            current.joined.found = {"new": FoundBackend(url="http://127.0.0.1:9", models=["m"])}
            current.rejoin()
            await until(lambda: caplog.text.count("could not take the new configuration") == 2)
        assert "no more files" in caplog.text
        await forks.pool.refresh()  # they hear what the owner says
        current.joined.found = {"newer": FoundBackend(url="http://127.0.0.1:9", models=["m"])}
        current.rejoin()
        await until(lambda: all(worker.version == current.version for worker in workers))


async def test_strategies_of_workers_see_the_figures_that_a_service_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(LlumnixLoad, "on_view", lambda _, view, settings: seen.append((view, settings.enabled)))
    async with pooled(config=Config(routing=RoutingSettings(strategy="llumnix_load"))) as forks:
        forks.pool.gateway.current.publish({"engines": 2})
        await until(lambda: seen == [({"engines": 2}, False)] * 3)  # the owner and its workers
