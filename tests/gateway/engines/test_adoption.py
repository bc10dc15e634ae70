"""Real gateways, really killed, and what becomes of their engines."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse.launchers import LaunchLine
from enginehouse.telemetry.log_ring import LogRing
from enginehouse_local.processes import identity, members, signal_group
from tests.support.launchers import local_launcher
from tests.support.paths import ROOT, SUPPORT
from tests.support.waiting import within

ENGINE = f"{shlex.quote(sys.executable)} -S {shlex.quote(str(SUPPORT / 'tiny_engine.py'))} ${{port}}"


class TinyGateway:
    """A gateway process; ``report`` is the first line it prints that has the key asked for."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.lines: list[Any] = []

    async def report(self, key: str) -> Any:
        assert self._process.stdout is not None
        while line := await within(self._process.stdout.readline()):
            self.lines.append(msgspec.json.decode(line))
            if key in self.lines[-1]:
                return self.lines[-1]
        raise AssertionError(f"the gateway ended without {key}: {self.lines}")

    async def end(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        await within(self._process.wait())


StartGateway = Callable[..., Awaitable[TinyGateway]]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[StartGateway]:
    gateways: list[TinyGateway] = []
    groups: set[int] = set()

    async def start(*start: str, **models: dict[str, Any]) -> TinyGateway:
        order = {"folder": str(tmp_path / "state"), "models": models, "start": start}
        program = [sys.executable, "-m", "tests.support.tiny_gateway", msgspec.json.encode(order).decode()]
        gateways.append(TinyGateway(await asyncio.create_subprocess_exec(*program, stdout=PIPE, cwd=ROOT)))
        return gateways[-1]

    yield start
    for gateway in gateways:
        for line in gateway.lines:
            groups.update(line.get("running", {}).values())
        await gateway.end(signal.SIGKILL)
    for group in groups:
        signal_group(group, signal.SIGKILL)


def runs(pid: int) -> bool:
    return identity(pid) is not None


async def test_a_killed_gateways_engine_is_adopted_by_the_next_one_and_stopped_in_the_end(
    gateway: StartGateway, tmp_path: Path
) -> None:
    first = await gateway("a", a={"command": ENGINE})
    before = await first.report("running")
    await first.end(signal.SIGKILL)
    assert runs(before["running"]["a"])

    second = await gateway("a", a={"command": ENGINE})
    after = await second.report("running")
    assert (after["running"], after["ports"]) == (before["running"], before["ports"])
    assert after["ready"] == ["a@a"]
    assert [line["state"] for line in second.lines if "state" in line] == ["starting", "ready"]
    assert after["log"]["a@a"].count("loading") == 1, "its log goes on, and it was not loaded again"
    assert 2**20 < after["measured"]["a@a"] < 2**28

    await second.end(signal.SIGTERM)
    assert (await second.report("left"))["left"] == []
    assert second.lines[-1]["logs"] == []
    assert not runs(after["running"]["a"])


async def test_an_engine_whose_gateway_is_dead_can_print_as_much_as_it_likes(gateway: StartGateway) -> None:
    first = await gateway("a", a={"command": ENGINE})
    before = await first.report("running")
    await first.end(signal.SIGKILL)
    reader, writer = await asyncio.open_connection("127.0.0.1", before["ports"]["a"])
    writer.write(b"GET /flood HTTP/1.0\r\n\r\n")
    assert (await within(reader.read())).startswith(b"HTTP/1.0 200")
    writer.close()

    second = await gateway(a={"command": ENGINE})
    after = await second.report("running")
    assert after["running"] == before["running"]
    assert "end of flood" in after["log"]["a@a"]
    await second.end(signal.SIGTERM)


async def test_an_engine_configured_otherwise_since_is_replaced(gateway: StartGateway) -> None:
    first = await gateway("a", a={"command": ENGINE})
    old = (await first.report("running"))["running"]["a"]
    await first.end(signal.SIGKILL)
    second = await gateway("a", a={"command": ENGINE, "env": {"SIZE": "large"}})
    new = (await second.report("running"))["running"]["a"]
    assert new != old
    assert not runs(old)
    assert runs(new)
    await second.end(signal.SIGTERM)
    assert not runs(new)


async def test_an_engine_that_is_not_configured_any_more_is_stopped(gateway: StartGateway) -> None:
    first = await gateway("a", "b", a={"command": ENGINE}, b={"command": ENGINE})
    old = (await first.report("running"))["running"]
    await first.end(signal.SIGKILL)
    second = await gateway(b={"command": ENGINE})
    assert (await second.report("running"))["running"] == {"b": old["b"]}
    assert [runs(old["a"]), runs(old["b"])] == [False, True]
    await second.end(signal.SIGTERM)


@pytest.mark.parametrize("lost", ['{"a": {"host": ', None])
async def test_engines_are_found_by_their_marks_if_their_records_are_lost(
    gateway: StartGateway, tmp_path: Path, lost: str | None
) -> None:
    first = await gateway("a", "b", a={"command": ENGINE}, b={"command": ENGINE})
    before = await first.report("running")
    await first.end(signal.SIGKILL)
    records = tmp_path / "state" / "engines.json"
    records.unlink() if lost is None else records.write_text(lost)

    second = await gateway(a={"command": ENGINE})
    after = await second.report("running")
    assert after["running"] == {"a": before["running"]["a"]}
    assert after["ports"] == {"a": before["ports"]["a"]}
    assert after["ready"] == ["a@a"]
    assert not runs(before["running"]["b"]), "it is not configured any more"
    await second.end(signal.SIGTERM)
    assert not runs(before["running"]["a"])


async def test_the_death_of_an_adopted_engine_is_noticed(gateway: StartGateway) -> None:
    first = await gateway("a", a={"command": ENGINE})
    pid = (await first.report("running"))["running"]["a"]
    await first.end(signal.SIGKILL)
    second = await gateway(a={"command": ENGINE})
    await second.report("running")
    os.kill(pid, signal.SIGKILL)
    assert (await second.report("gone"))["gone"] == "a@a"
    await second.end(signal.SIGTERM)
    assert (await second.report("left"))["left"] == []


async def test_what_is_left_of_an_engine_that_died_without_a_gateway_is_killed(
    gateway: StartGateway, fifo: Path
) -> None:
    first = await gateway("a", a={"command": f"{ENGINE} {fifo}"})
    pid = (await first.report("running"))["running"]["a"]
    end = await within(asyncio.to_thread(fifo.open, "rb"))
    await first.end(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    assert len(members(pid)) > 0
    second = await gateway(a={"command": f"{ENGINE} {fifo}"})
    report = await second.report("running")
    assert (report["running"], report["ready"]) == ({}, [])
    with end:
        assert await within(asyncio.to_thread(end.read)) == b""
    assert members(pid) == []
    await second.end(signal.SIGTERM)


async def test_a_second_gateway_at_the_same_time_leaves_the_firsts_engines_alone(gateway: StartGateway) -> None:
    first = await gateway("a", a={"command": ENGINE})
    pid = (await first.report("running"))["running"]["a"]
    second = await gateway("a", a={"command": ENGINE})
    assert (await second.report("running"))["running"]["a"] != pid
    await second.end(signal.SIGTERM)
    assert runs(pid)
    await first.end(signal.SIGTERM)
    assert not runs(pid)


async def test_a_process_that_only_has_the_number_of_an_engine_is_left_alone(tmp_path: Path) -> None:
    """Numbers are used again; the one at hand surely belongs to somebody else."""
    handle = {"pid": os.getpid(), "identity": f"{identity(os.getpid())}0", "log": "log"}
    assert await local_launcher(tmp_path).adopt("a", LaunchLine(command=(), port=1), handle, LogRing()) is None
    assert os.listdir(tmp_path) == []


async def test_a_handle_of_another_launcher_is_none_of_ours(tmp_path: Path) -> None:
    assert await local_launcher(tmp_path).adopt("a", LaunchLine(command=(), port=1), {"pod": "a"}, LogRing()) is None
