"""The servers that are measured, and the processes whose time and memory are counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import psutil

from enginehouse import GatewayError
from enginehouse_kit.gateway import RunningGateway

_LISTENING = re.compile(r"listening on (http://\S+)")
_BACKENDS = ("a", "b", "c")


class CpuTime(NamedTuple):
    """Processor time in seconds: all of it, and what the kernel took of it."""

    total: float
    system: float


class Contender(msgspec.Struct, frozen=True):
    """A server to send requests to. ``pid``: of the process whose time is counted; ``None`` if it runs elsewhere.

    ``may_pause``: it has no other clients.
    """

    name: str
    url: str
    pid: int | None = None
    may_pause: bool = False

    def cpu_time(self) -> CpuTime | None:
        """The processor time so far of the process and its children; ``None`` if that cannot be known."""
        if self.pid is None:
            return None
        user = system = 0.0
        for process in self._processes(self.pid):
            with suppress(psutil.Error):
                times = process.cpu_times()
                user += times.user
                system += times.system
        return CpuTime(user + system, system)

    def memory(self) -> int | None:
        """The resident memory in bytes of the process and its children; ``None`` if that cannot be known."""
        if self.pid is None:
            return None
        total = 0
        for process in self._processes(self.pid):
            with suppress(psutil.Error):
                total += process.memory_info().rss
        return total

    def pause(self) -> None:
        """Stop the process and its children, so that they leave the core to another contender."""
        for process in self._pausable():
            with suppress(psutil.Error):
                process.suspend()

    def resume(self) -> None:
        """Let them run again."""
        for process in self._pausable():
            with suppress(psutil.Error):
                process.resume()

    def _pausable(self) -> list[psutil.Process]:
        return self._processes(self.pid) if self.pid is not None and self.may_pause else []

    @staticmethod
    def _processes(pid: int) -> list[psutil.Process]:
        try:
            own = psutil.Process(pid)
            return [own, *own.children(recursive=True)]
        except psutil.Error:
            return []


class Cores(msgspec.Struct, frozen=True):
    """The cores of the measured gateways, and those of the clients and the engine. Empty: any core."""

    gateway: frozenset[int] = frozenset()
    clients: frozenset[int] = frozenset()

    @classmethod
    def of_this_machine(cls) -> Cores:
        """The last core that this process may use for the gateways, the others for the rest, on Linux with two."""
        if sys.platform != "linux" or len(mask := os.sched_getaffinity(0)) < 2:
            return cls()
        return cls(frozenset({max(mask)}), frozenset(mask - {max(mask)}))


def pin(pid: int, cores: frozenset[int]) -> None:
    """Keep the process on ``cores``, if there are any."""
    if cores and sys.platform == "linux":
        os.sched_setaffinity(pid, cores)


@contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Keep this process, and all that it starts inside the block, on ``cores``."""
    before = os.sched_getaffinity(0) if sys.platform == "linux" else frozenset[int]()
    pin(os.getpid(), cores)
    try:
        yield
    finally:
        pin(os.getpid(), frozenset(before))


@contextmanager
def taking_turns(contenders: Sequence[Contender]) -> Iterator[None]:
    """Pause all ``contenders`` but those in their ``turn``: leftover work of the others would take the core."""
    for each in contenders:
        each.pause()
    try:
        yield
    finally:
        for each in contenders:
            each.resume()


@contextmanager
def turn(contender: Contender) -> Iterator[None]:
    """Let ``contender`` run meanwhile."""
    contender.resume()
    try:
        yield
    finally:
        contender.pause()


@contextmanager
def own_engine(cores: Cores) -> Iterator[str]:
    """Run the engine of this package; yields its address."""
    command = [sys.executable, "-m", "enginehouse_bench.engine"]
    with pinned(cores.clients):
        engine = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with engine:
        try:
            assert engine.stdout is not None
            printed = engine.stdout.readline()
            found = _LISTENING.search(printed)
            if found is None:
                raise GatewayError(f"The engine of the benchmark did not start: {printed}")
            yield found[1]
        finally:
            engine.kill()


@contextmanager
def own_gateway(
    name: str, engine: str, keys: Mapping[str, str], cores: Cores, python: str = sys.executable
) -> Iterator[Contender]:
    """Run a gateway that chooses among three backends at ``engine``; ``keys`` replace keys of its configuration.

    ``python``: the interpreter of the environment where it is installed.
    """
    tables = "".join(f'[backends.{each}]\nurl = "{engine}"\n' for each in _BACKENDS)
    overrides = {"ENGINEHOUSE_" + key.upper().replace(".", "_"): value for key, value in keys.items()}
    with ExitStack() as stack:
        try:
            with pinned(cores.gateway):
                gateway = stack.enter_context(RunningGateway(tables, overrides, python=python))
        except RuntimeError as error:
            raise GatewayError(str(error)) from None
        gateway.until_health(**dict.fromkeys(_BACKENDS, "healthy"))
        yield Contender(name, gateway.url, gateway.pid, may_pause=True)


def listener(url: str) -> Contender:
    """The server at ``url``, with the process that listens there if it is one of this machine that we may see."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise GatewayError(f"'{url}' cannot be measured: write it as http://host:port")
    pid = None
    with suppress(psutil.Error, OSError):
        listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        pids = [each.pid for each in listening if each.laddr and each.laddr.port == (parts.port or 80)]
        pid = pids[0] if pids and parts.hostname in ("127.0.0.1", "localhost", "::1") else None
    return Contender(f"{parts.hostname}:{parts.port or 80}", url, pid)
