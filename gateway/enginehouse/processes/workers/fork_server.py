"""Processes that were forked before any thread ran, and fork the workers.

A worker begins with everything that is imported, in milliseconds, and shares that memory. One such process forks, and a
spare one takes its place if it is killed or hangs.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from enginehouse.aio.timeouts import run_within

_NUMBER: Final = 4
_SPARE: Final = 2**32 - 1
"""Asks for another process that forks, in place of the number of a worker."""
_PROCESSES: Final = 2
_ANSWER_S: Final = 5.0
"""A process that has not forked by then hangs."""
Serve = Callable[[int, socket.socket], None]
"""Serves as a worker of some number, which the owner speaks to over the socket. Returns when it has ended."""


class NoForkServer(OSError):
    """All processes that fork workers have been killed. Only a new gateway has others."""


class _Forking(NamedTuple):
    pid: int
    orders: socket.socket


class ForkServer:
    """Forks a process for each call of ``fork``. Make it before any thread or event loop.

    ``serve`` runs in each of them. They ignore the signals that stop the gateway: the owner tells them to stop.
    """

    def __init__(self, serve: Serve, fork: Callable[[], int] = os.fork) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            ours.close()
            _run_and_exit(lambda: _fork_until_closed(theirs, serve, fork))
        theirs.close()
        ours.setblocking(False)
        self._processes = [_Forking(pid, ours)]
        self._turn = asyncio.Lock()

    async def fork(self, number: int) -> tuple[int, socket.socket]:
        """A new worker: its pid, and the socket to it. Raises ``OSError``, and ``NoForkServer`` if that is final."""
        async with self._turn:
            while self._processes:
                try:
                    return await _order(self._processes[0], number)
                except (ConnectionError, TimeoutError):  # noqa: PERF203 - waits anyway
                    self._drop(self._processes[0])
        raise NoForkServer("the processes that fork workers have been killed")

    async def keep_spare(self) -> None:
        """Replace the spare process if it has ended. Raises ``OSError`` if that is impossible now."""
        async with self._turn:
            for each in [each for each in self._processes if _has_ended(each)]:
                self._drop(each)
            if self._processes and len(self._processes) < _PROCESSES:
                pid, orders = await _order(self._processes[0], _SPARE)
                orders.setblocking(False)
                self._processes.append(_Forking(pid, orders))

    def kill(self, pid: int) -> None:
        """End a worker at once, if it has not ended."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the processes that fork. Workers go on."""
        for each in self._processes:
            each.orders.close()
        self._processes.clear()

    def _drop(self, process: _Forking) -> None:
        self._processes.remove(process)
        process.orders.close()
        self.kill(process.pid)  # it may only hang


async def _order(process: _Forking, number: int) -> tuple[int, socket.socket]:
    """What ``process`` has forked: the pid, and the socket to it.

    Raises ``ConnectionError`` or ``TimeoutError`` if ``process`` has ended or hangs, another ``OSError`` if it cannot
    fork.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            socket.send_fds(process.orders, [number.to_bytes(_NUMBER, "big")], [theirs.fileno()])
        received = asyncio.get_running_loop().sock_recv(process.orders, _NUMBER)
        data = await run_within(_ANSWER_S, received)
        if len(data) != _NUMBER:
            raise ConnectionError("the process that forks workers has ended")
        answer = int.from_bytes(data, "big", signed=True)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))  # of the class that fits, such as BlockingIOError
    except BaseException:
        ours.close()
        raise
    return answer, ours


def _has_ended(process: _Forking) -> bool:
    """Whether ``process`` has closed its side. It says nothing without an order."""
    try:
        return not process.orders.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _fork_until_closed(orders: socket.socket, serve: Serve, fork: Callable[[], int]) -> None:
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets workers that have ended
    while True:
        data, fds, _, _ = socket.recv_fds(orders, _NUMBER, 1)
        if not data:
            return
        number = int.from_bytes(data, "big")
        try:
            pid = fork() if fds else -errno.EMFILE
        except OSError as error:  # the owner asks again later
            pid = -(error.errno or errno.EAGAIN)
        if not pid:
            orders.close()
            orders = socket.socket(fileno=fds[0])
            if number == _SPARE:
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run_and_exit(partial(serve, number, orders))
        for each in fds:
            os.close(each)
        orders.sendall(pid.to_bytes(_NUMBER, "big", signed=True))


def _run_and_exit(work: Callable[[], None]) -> None:
    """Run ``work`` and exit at once. What Python does at the end of a process is left to the parent."""
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
