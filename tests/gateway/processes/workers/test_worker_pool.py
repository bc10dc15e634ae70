"""The pool replaces workers, whatever it takes."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.processes.workers.fork_server import NoForkServer
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
async def pooled(*failures: OSError) -> AsyncIterator[Forks]:
    forks = Forks(Gateway(Config(), load_plugins(PluginSettings()).registry), 2)
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
        await until(lambda: all(link.version for link in forks.pool.links.values()))
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
