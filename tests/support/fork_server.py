"""Forks the gateways and the engines of the kit from a process that has imported what they import.

Importing takes most of the time in which they start. ``popen`` runs in the tests' process, ``main`` in the one that
forks. A server whose environment has other variables of Python's, such as a path of its own, starts as users start it.
With an empty ``QUICK_STARTS`` in the environment of the tests, all do, as ``.ci/compiled`` has it.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from tests.support.paths import ROOT

_LOCK = threading.Lock()
_NUMBER = 4
_LONGEST_ORDER = 1 << 20
_MODULES = ("enginehouse", "enginehouse_sim")
_IMPORTED = ("enginehouse.processes.serve", "uvicorn.lifespan.off", "uvloop", "enginehouse_sim.simulator.serve.command")


def pytest_configure() -> None:
    if sys.platform == "linux" and os.environ.get("QUICK_STARTS", "1"):
        from enginehouse_kit import process

        process.popen = popen


def pytest_unconfigure() -> None:
    if _only_server.cache_info().currsize:
        _server().close()


def popen(
    command: Sequence[str],
    *,
    stdout: int,
    stderr: BinaryIO | None,
    cwd: Path | None,
    env: Mapping[str, str] | None,
) -> Any:
    """What ``subprocess.Popen`` does, for a ``ServerProcess``."""
    environment = dict(os.environ if env is None else env)
    python, option, module, *arguments = command
    if (
        (python, option) != (sys.executable, "-m")
        or module not in _MODULES
        or _of_python(environment) != _server().of_python
    ):
        return subprocess.Popen(command, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
    order = [module, arguments, str(cwd or Path.cwd()), environment]
    return ForkedProcess(json.dumps(order).encode(), 2 if stderr is None else stderr.fileno())


class ForkedProcess:
    """What a ``ServerProcess`` uses of ``subprocess.Popen``."""

    def __init__(self, order: bytes, stderr: int) -> None:
        self.returncode: int | None = None
        reads, writes = os.pipe()
        self.stdout = os.fdopen(reads, "rb", buffering=0)
        self._status, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_server().orders, [order], [writes, stderr, theirs.fileno()])
        os.close(writes)
        self.pid = self._number()

    def send_signal(self, number: int) -> None:
        if self._ready(0):
            self.wait()
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended, and its status is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._ready(timeout):
                raise subprocess.TimeoutExpired(f"the server with pid {self.pid}", timeout or 0.0)
            self.returncode = self._number()
            self._status.close()
        return self.returncode

    def _ready(self, timeout: float | None) -> bool:
        return self.returncode is None and bool(select.select([self._status], [], [], timeout)[0])

    def _number(self) -> int:
        data = self._status.recv(_NUMBER)
        if len(data) != _NUMBER:
            raise RuntimeError("the process that forks servers has ended")
        return int.from_bytes(data, "big", signed=True)


class ForkServer:
    """The process that forks, and the socket to it. It ends when the socket is closed."""

    def __init__(self) -> None:
        self.of_python = _of_python(os.environ)
        self.orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST_ORDER)
        command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
        env = {name: value for name, value in os.environ.items() if not name.startswith("ENGINEHOUSE_")}
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=ROOT, env=env
            )

    def close(self) -> None:
        self.orders.close()
        self._process.wait()


def _server() -> ForkServer:
    with _LOCK:
        return _only_server()


@cache
def _only_server() -> ForkServer:
    return ForkServer()


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


# --- in the process that forks


def main() -> None:
    """Fork a server for each order until the tests end, and say how each has ended."""
    _import_all()
    orders = socket.socket(fileno=int(sys.argv[1]))
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, socket.socket] = {}
    while True:
        readable, _, _ = select.select([orders, woken], [], [])
        if woken in readable:
            woken.recv(1 << 12)
            _report_ended(running)
        if orders not in readable:
            continue
        order, fds, _, _ = socket.recv_fds(orders, _LONGEST_ORDER, 3)
        if not order:
            return
        stdout, stderr, status = fds
        if not (pid := os.fork()):
            signal.set_wakeup_fd(-1)
            for each in (orders, woken, wakes, *running.values()):
                each.close()
            os.close(status)
            _serve(json.loads(order), stdout, stderr)
            return
        running[pid] = socket.socket(fileno=status)
        running[pid].sendall(pid.to_bytes(_NUMBER, "big", signed=True))
        os.close(stdout)
        os.close(stderr)


def _import_all() -> None:
    from enginehouse.config.schema import PluginSettings
    from enginehouse.plugin_manager.discovery import load_plugins

    load_plugins(PluginSettings())
    for each in _IMPORTED:
        with suppress(ModuleNotFoundError):  # not everywhere is a uvloop
            import_module(each)
    gc.collect()
    gc.freeze()  # so that collections leave the shared memory alone


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as ended, suppress(OSError):  # of a test that did not wait for its server
            ended.sendall(os.waitstatus_to_exitcode(status).to_bytes(_NUMBER, "big", signed=True))


def _serve(order: tuple[str, list[str], str, dict[str, str]], stdout: int, stderr: int) -> None:
    """Be ``python -m module``, as far as it can tell."""
    module, arguments, folder, environment = order
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[0] = folder
    sys.argv[:] = [module, *arguments]
    sys.orig_argv[:] = [sys.executable, "-m", module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
