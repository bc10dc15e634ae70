"""Processes and process groups, as the operating system reports them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import psutil

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.1
_CONNECT_S = 0.001
"""A process of this machine takes a connection in some millionths of a second, unless its queue is full."""
_FIRST_TRY_S, _LONGEST_TRY_S, _TRY_GROWTH = 0.004, 0.05, 1.3
"""The pauses between two looks whether an engine listens, which prints nothing meanwhile."""
_READINGS, _YOUNG_S = 10, 5.0
_DEATH_S = 30.0
"""How long a killed process may take to end. One that hangs in a device driver needs long."""


def identity(pid: int) -> str | None:
    """Identifies a process, even among later ones with its number. ``None`` if it has ended."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{_era()}/{_started(process)}"
    except (psutil.Error, OSError):
        return None


def died_in_this_era(known: str) -> bool:
    """Whether the identity ``known`` is of this boot and this container, so that its group may still have members."""
    era = known.partition("/")[0]
    return bool(era) and era == _era()


@cache
def _era() -> str:
    """Identifies the boot and the container, within which process numbers are unique. Empty if unknown."""
    if not psutil.LINUX:
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"


def _started(process: psutil.Process) -> str:
    """The start time of a process, in a form that setting the clock does not change."""
    if not psutil.LINUX:
        return repr(process.create_time())
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]


def members(group: int) -> Sequence[int]:
    """The running processes of a group."""
    return [pid for pid in psutil.pids() if _group_of(pid) == group and identity(pid) is not None]


def group_with(variable: str, value: str) -> int | None:
    """The group of a process that has ``variable=value`` in its environment, ``None`` if there is none."""
    return next((group for group, found in _values_of(variable) if found == value), None)


def groups_with(variable: str) -> dict[int, str]:
    """The values of ``variable`` in the environments of processes, by the groups of these."""
    return dict(_values_of(variable))


def _values_of(variable: str) -> Iterator[tuple[int, str]]:
    """The values of ``variable``, each with the group of a process that has it."""
    for process in psutil.process_iter():
        value = _environment(process).get(variable)
        if value is not None and (group := _group_of(process.pid)) is not None:
            yield group, value


def _environment(process: psutil.Process) -> Mapping[str, str]:
    """The environment of a process; empty if it has none, or has ended, or is another user's.

    While a process becomes another program (``execve``), Linux shows no environment at all. So a young one without any
    is read again; kernel threads have none for ever.
    """
    with contextlib.suppress(psutil.Error, OSError):
        for _ in range(_READINGS):
            if environment := process.environ():
                return environment
            if time.time() - process.create_time() > _YOUNG_S or process.status() == psutil.STATUS_ZOMBIE:
                break
            time.sleep(_SHORTEST_PAUSE_S)
    return {}


def memory_of(group: int) -> int:
    """The bytes of main memory that a group takes. On Linux, memory that its members share counts once."""
    pids = members(group)
    shared = len(pids) > 1 and psutil.LINUX
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error):  # it has just ended
            process = psutil.Process(pid)
            total += process.memory_full_info().pss if shared else process.memory_info().rss
    return total


def bytes_moved_by(group: int) -> int:
    """The bytes that the running members of a group have read and written so far, and those that they hold."""
    total = 0
    for pid in members(group):
        with contextlib.suppress(psutil.Error):  # it has just ended
            process = psutil.Process(pid)
            total += process.memory_info().rss
            if hasattr(process, "io_counters"):  # not on macOS
                moved = process.io_counters()
                total += moved.read_bytes + moved.write_bytes
                total += getattr(moved, "read_chars", 0) + getattr(moved, "write_chars", 0)
    return total


def processor_seconds_of(group: int) -> float:
    """The processor time that the running members of a group have taken."""
    total = 0.0
    for pid in members(group):
        with contextlib.suppress(psutil.Error):  # it has just ended
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    return total


def is_marked(pid: int, variable: str, log: Path) -> bool:
    """Whether a process was started with ``log`` in ``variable`` of its environment, or prints there.

    A program that sets its title may overwrite the environment that the system shows.
    """
    with contextlib.suppress(psutil.Error):
        if _environment(psutil.Process(pid)).get(variable) == str(log):
            return True
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # not on macOS
            if os.path.samefile(f"/proc/{pid}/fd/{descriptor}", log):
                return True
    return False


def may_end(group: int) -> bool:
    """Whether a group may be signalled at all: neither everything, nor this process's own group."""
    return group > 1 and group != os.getpgrp()


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to every running member of a group."""
    if not may_end(group):
        _log.error("Process group %d is not an engine's, and gets no signal", group)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS raises the second if only zombies are left
        os.killpg(group, number)


class PortWatch:
    """Looks whether a process of this machine listens on a port: at growing intervals, and whenever it is told to.

    ``found`` is done when one does. The cancellation of ``found`` ends the looks.

    One with a full queue listens too, although it takes no more connections. Between two looks nothing runs, and a look
    costs far less than a request that is refused.
    """

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._loop = asyncio.get_running_loop()
        self.found: asyncio.Future[None] = self._loop.create_future()
        self._pause = _FIRST_TRY_S
        self._next = self._loop.call_soon(self._look)

    def look_now(self) -> None:
        """Look now, because something has happened, and soon again."""
        self._pause = _FIRST_TRY_S
        self._look()

    def _look(self) -> None:
        self._next.cancel()
        if self.found.done():
            return
        try:
            with socket.socket() as connection:
                connection.settimeout(_CONNECT_S)
                listens = connection.connect_ex(self._address) != errno.ECONNREFUSED
        except OSError:  # the gateway has no socket left, as the engine's health check will say
            listens = True
        if listens:
            self.found.set_result(None)
            return
        self._next = self._loop.call_later(self._pause, self._look)
        self._pause = min(self._pause * _TRY_GROWTH, _LONGEST_TRY_S)


async def kill_group(group: int) -> None:
    """Kill a group and wait until its processes have ended and freed their memory."""
    deadline = asyncio.get_running_loop().time() + _DEATH_S
    pause = _SHORTEST_PAUSE_S
    while may_end(group) and _exists(group):
        if not (running := await asyncio.to_thread(members, group)):  # zombies do not count
            return
        if asyncio.get_running_loop().time() > deadline:
            _log.error("The processes of group %d were killed and do not end: %s", group, running)
            return
        signal_group(group, signal.SIGKILL)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


async def ended(pid: int) -> None:
    """Wait until a process has ended. It need not be a child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # pidfd_open is Linux only
        known = identity(pid)
        while known is not None and identity(pid) == known:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(_LONGEST_PAUSE_S)
        return
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None
