from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import psutil
import pytest

from enginehouse_local import processes
from enginehouse_local.processes import (
    PortWatch,
    died_in_this_era,
    ended,
    group_with,
    groups_with,
    identity,
    kill_group,
    members,
    memory_of,
)
from tests.support.virtual_time import Run
from tests.support.waiting import within

Spawn = Callable[..., "subprocess.Popen[bytes]"]
HOLD_40_MB = "import sys; held = b'x' * 40_000_000; print('up', flush=True); sys.stdin.read()"
FORK_AND_SHARE = """
import os, sys
held = b'x' * 40_000_000
if os.fork(): print('up', flush=True)
sys.stdin.read()
"""


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    children = []

    def spawn(code: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        return child

    yield spawn
    for child in children:
        processes.signal_group(child.pid, signal.SIGKILL)
        child.communicate()


def test_a_process_is_told_from_every_other_until_it_ends(spawn: Spawn) -> None:
    one, other = spawn(HOLD_40_MB), spawn(HOLD_40_MB)
    known = identity(one.pid)
    assert known is not None
    assert known == identity(one.pid)
    assert known.partition("/")[0] == (identity(other.pid) or "").partition("/")[0]
    assert identity(os.getpid()) != known
    one.kill()
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    assert identity(one.pid) is None, "a zombie does not run"
    one.wait()
    assert identity(one.pid) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells one boot from another")
def test_process_numbers_of_another_boot_mean_nothing() -> None:
    known = identity(os.getpid())
    assert known is not None
    assert died_in_this_era(known)
    assert not died_in_this_era("another-boot/1")
    assert not died_in_this_era("")


def test_a_groups_memory_counts_all_its_members_and_what_they_share_once(spawn: Spawn) -> None:
    alone, forked = spawn(HOLD_40_MB), spawn(FORK_AND_SHARE)
    assert len(members(alone.pid)) == 1
    assert 40e6 < memory_of(alone.pid) < 80e6
    assert len(members(forked.pid)) == 2
    if sys.platform == "linux":
        assert 40e6 < memory_of(forked.pid) < 80e6


@pytest.mark.parametrize("with_pidfd", [True, False])
async def test_an_end_is_noticed(with_pidfd: bool, spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    child = spawn(HOLD_40_MB)
    end = asyncio.ensure_future(ended(child.pid))
    await asyncio.wait({end}, timeout=0.02)
    assert not end.done()
    child.kill()
    await within(end)
    child.wait()
    await within(ended(child.pid))


async def test_a_killed_group_has_no_members_left(spawn: Spawn) -> None:
    child = spawn(FORK_AND_SHARE)
    [other] = set(members(child.pid)) - {child.pid}
    await kill_group(child.pid)
    assert members(child.pid) == []
    assert identity(other) is None
    assert child.wait() == -signal.SIGKILL


async def test_a_loop_does_not_wait_while_the_members_of_a_group_are_looked_for(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may have tens of thousands of processes, and a large engine takes seconds to die."""
    threads: list[threading.Thread] = []

    def looked(group: int) -> Sequence[int]:
        threads.append(threading.current_thread())
        return members(group)

    monkeypatch.setattr(processes, "members", looked)
    await kill_group(spawn(HOLD_40_MB).pid)
    assert threads
    assert threading.main_thread() not in threads


def test_a_silent_engine_is_looked_for_at_growing_intervals_and_after_each_line(
    in_virtual_time: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    listens = False

    class Socket(nullcontext["Socket"]):
        def __enter__(self) -> Socket:
            return self

        def settimeout(self, seconds: float) -> None:
            assert 0 < seconds <= 0.001

        def connect_ex(self, address: tuple[str, int]) -> int:
            looks.append(asyncio.get_running_loop().time())
            return 0 if listens else errno.ECONNREFUSED

    async def scenario() -> None:
        nonlocal listens
        watch = PortWatch("127.0.0.1", 4711)
        found = watch.found
        await asyncio.sleep(3)
        pauses = [round(after - before, 6) for before, after in pairwise(looks)]
        assert pauses == sorted(pauses)
        assert pauses[0] == 0.004
        assert pauses[-1] == 0.05
        assert len(looks) < 80
        before = len(looks)
        watch.look_now()
        await asyncio.sleep(0.01)
        assert len(looks) == before + 3, "at once, and soon again"
        listens = True
        watch.look_now()
        await found
        watch.look_now()
        assert len(looks) == before + 4, "nobody waits any more"

    monkeypatch.setattr(processes, "socket", SimpleNamespace(socket=Socket))
    in_virtual_time(scenario())


class Young:
    """A process that becomes another program while it is looked at: its environment is empty at first."""

    pid = os.getpid()

    def __init__(self, *environments: dict[str, str], age: float = 0.0) -> None:
        self.environments = list(environments)
        self.age = age

    def environ(self) -> dict[str, str]:
        return self.environments.pop(0)

    def create_time(self) -> float:
        return time.time() - self.age

    def status(self) -> str:
        return psutil.STATUS_RUNNING


@pytest.mark.parametrize(("age", "found"), [(0.0, True), (3600.0, False)])
def test_an_environment_that_is_empty_at_first_is_read_again(
    monkeypatch: pytest.MonkeyPatch, age: float, found: bool
) -> None:
    process = Young({}, {}, {"MARK": "a"}, age=age)
    monkeypatch.setattr(psutil, "process_iter", lambda: [process])
    group = os.getpgid(0)
    assert groups_with("MARK") == ({group: "a"} if found else {})
    process.environments[:] = [{}, {"MARK": "a"}]
    assert group_with("MARK", "b") is None
    assert len(process.environments) == (0 if found else 1)
