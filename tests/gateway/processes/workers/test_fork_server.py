"""The processes that fork workers, which are real ones."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from enginehouse.aio.timeouts import run_within
from enginehouse.processes.workers import fork_server
from enginehouse.processes.workers.fork_server import ForkServer, NoForkServer
from tests.support.waiting import until, within


def _serve(number: int, owner: socket.socket) -> None:
    """A worker that says its number and its parent, and ends with its owner."""
    owner.sendall(f"{number} {os.getppid()}".encode())
    owner.recv(1)


@asynccontextmanager
async def forking(fork: Callable[[], int] = os.fork) -> AsyncIterator[ForkServer]:
    server = ForkServer(_serve, fork)
    try:
        yield server
    finally:
        server.close()


async def born(server: ForkServer, number: int) -> tuple[int, int]:
    """The pids of a new worker and of the process that has forked it."""
    pid, ours = await within(server.fork(number))
    with ours:
        ours.setblocking(False)
        said, parent = map(int, (await within(asyncio.get_running_loop().sock_recv(ours, 100))).split())
    assert said == number
    return pid, parent


def end(pid: int) -> None:
    process = psutil.Process(pid)
    is_ours = process.ppid() == os.getpid()  # the system may forget another one as soon as it is killed
    process.kill()
    if is_ours:
        os.waitpid(pid, 0)


def running(*pids: int) -> list[int]:
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def test_one_process_forks_all_workers() -> None:
    async with forking() as server:
        (one, parent), (two, other) = [await born(server, number) for number in (0, 70_000)]
        assert len({one, two, parent}) == 3
        assert other == parent


async def test_a_fork_that_fails_is_told_and_the_next_one_works(tmp_path: Path) -> None:
    full = tmp_path / "full"

    def fork() -> int:
        if full.exists():
            raise BlockingIOError(errno.EAGAIN, "no more processes")
        return os.fork()

    async with forking(fork) as server:
        _, parent = await born(server, 1)
        full.touch()
        for attempt in (server.fork(2), server.fork(3), server.keep_spare()):
            with pytest.raises(BlockingIOError, match="temporarily unavailable"):
                await within(attempt)
        full.unlink()
        assert (await born(server, 2))[1] == parent


async def test_a_spare_takes_the_place_of_a_killed_one_again_and_again() -> None:
    async with forking() as server:
        parents = []
        for number in range(3):
            await server.keep_spare()
            await server.keep_spare()
            _, parent = await born(server, number)
            parents.append(parent)
            end(parent)
        assert len(set(parents)) == 3


async def test_a_spare_that_was_killed_is_replaced() -> None:
    async with forking() as server:
        await server.keep_spare()
        _, first = await born(server, 0)
        spare = server._processes[1].pid
        end(spare)
        await until(lambda: not running(spare))
        await server.keep_spare()
        end(first)
        _, second = await born(server, 1)
        assert second not in (first, spare)


async def test_one_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with forking() as server:
        await server.keep_spare()
        _, first = await born(server, 0)
        os.kill(first, signal.SIGSTOP)
        limits = iter([0.001])
        monkeypatch.setattr(fork_server, "run_within", lambda limit, work: run_within(next(limits, limit), work))
        _, second = await born(server, 1)
        assert second != first
        await until(lambda: not running(first))


async def test_none_is_left() -> None:
    async with forking() as server:
        await server.keep_spare()
        for number in (0, 1):
            _, parent = await born(server, number)
            end(parent)
        with pytest.raises(NoForkServer):
            await born(server, 2)
        await server.keep_spare()


async def test_all_end_with_the_owner() -> None:
    async with forking() as server:
        await server.keep_spare()
        _, first = await born(server, 0)
        spare = server._processes[1].pid
    await until(lambda: not running(first, spare))
