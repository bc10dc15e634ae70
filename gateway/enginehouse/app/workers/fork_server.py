"""A process that was forked before any thread ran, and forks the workers.

A worker begins with everything that is imported, in milliseconds, and shares that memory.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

_NUMBER: Final = 4
Serve = Callable[[int, socket.socket], None]
"""Serves as a worker of some number, which the owner speaks to over the socket. Returns when it has ended."""


class ForkServer:
    """Forks a process for each call of ``fork``. Make it before any thread or event loop.

    ``serve`` runs in each of them. They ignore the signals that stop the gateway: the owner tells them to stop.
    """

    def __init__(self, serve: Serve) -> None:
        self._orders, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork():
            theirs.close()
            return
        self._orders.close()
        _run_and_exit(lambda: _fork_until_closed(theirs, serve))

    def fork(self, number: int) -> tuple[int, socket.socket]:
        """A new worker: its pid, and the socket to it. Raises ``OSError``."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._orders, [number.to_bytes(_NUMBER, "big")], [theirs.fileno()])
                answer = self._orders.recv(_NUMBER)
            if len(answer) != _NUMBER:
                raise OSError("the process that forks workers has ended")
        except OSError:
            ours.close()
            raise
        return int.from_bytes(answer, "big"), ours

    def kill(self, pid: int) -> None:
        """End a worker at once, if it has not ended."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process. Workers go on."""
        self._orders.close()


def _fork_until_closed(orders: socket.socket, serve: Serve) -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets workers that have ended
    while True:
        data, fds, _, _ = socket.recv_fds(orders, _NUMBER, 1)
        if not data:
            return
        pid = os.fork()
        if not pid:
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run_and_exit(partial(serve, int.from_bytes(data, "big"), socket.socket(fileno=fds[0])))
        os.close(fds[0])
        orders.sendall(pid.to_bytes(_NUMBER, "big"))


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
