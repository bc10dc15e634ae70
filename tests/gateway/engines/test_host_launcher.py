"""What is written down of an engine, and when: its gateway may die at any moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginehouse import Launcher
from enginehouse.engines.state_file import StateFile
from enginehouse.errors import LoadFailed
from enginehouse.launchers import LaunchLine
from enginehouse.telemetry.log_ring import LogRing
from enginehouse_local.launcher import LocalProcess
from enginehouse_local.processes import identity, members
from tests.support.host_launchers import launches
from tests.support.launchers import local_launcher

LINE = LaunchLine(command=["sleep", "60"], port=4711)
FORKS = "import os, time\nif os.fork():\n    time.sleep(60)\nelse:\n    print('forked', flush=True)\n    time.sleep(60)"


@pytest.fixture
def state_file(tmp_path: Path) -> Iterator[StateFile]:
    file = StateFile(tmp_path / "state")
    yield file
    file.close()


def on_disk(state_file: StateFile) -> dict[str, Any]:
    """The handles that the next gateway would find."""
    return {name: record.handle for name, record in state_file._file.read({}).items()}


class Witness(Launcher):
    """A launcher that looks at what is written down while it launches."""

    def __init__(self, state_file: StateFile, process: Any) -> None:
        self.seen: dict[str, Any] = {}
        self._state_file = state_file
        self._process = process

    async def launch(self, *given: Any) -> Any:
        self.seen = on_disk(self._state_file)
        if isinstance(self._process, BaseException):
            raise self._process
        return self._process

    async def adopt(self, *given: Any) -> Any:
        return self._process


class Process:
    address = "http://127.0.0.1:1"
    handle = {"pid": 1}


async def test_an_engine_is_written_down_before_it_is_launched(state_file: StateFile) -> None:
    witness = Witness(state_file, Process())
    await launches(witness, state_file).launch("a", LINE, LogRing())
    assert witness.seen == {"a": {}}
    assert on_disk(state_file) == {"a": {"pid": 1}}


@pytest.mark.parametrize("failure", [LoadFailed("no such program"), asyncio.CancelledError()])
async def test_an_engine_that_could_not_be_launched_has_no_record(
    state_file: StateFile, failure: BaseException
) -> None:
    witness = Witness(state_file, failure)
    with pytest.raises(type(failure)):
        await launches(witness, state_file).launch("a", LINE, LogRing())
    assert witness.seen == {"a": {}}
    assert on_disk(state_file) == {}


async def test_an_engine_whose_gateway_died_while_it_launched_it_is_found_and_written_down(
    state_file: StateFile,
) -> None:
    async def dies(*given: Any) -> LocalProcess:
        launched.append(await local.launch("a", LINE, LogRing()))
        raise KeyboardInterrupt

    launched: list[LocalProcess] = []
    local = local_launcher(state_file.logs)
    witness = Witness(state_file, None)
    witness.launch = dies  # type: ignore[method-assign]
    state_file.remove = lambda *given: None  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        await launches(witness, state_file).launch("a", LINE, LogRing())
    assert on_disk(state_file) == {"a": {}}

    found = await launches(local, state_file).adopt("a", LINE, LogRing())
    assert found is not None
    assert on_disk(state_file) == {"a": launched[0].handle}
    await found.stop(5)
    assert identity(launched[0].pid) is None


async def test_what_such_an_engine_left_behind_is_killed(tmp_path: Path) -> None:
    log = LogRing()
    local = local_launcher(tmp_path)
    line = LaunchLine(command=[sys.executable, "-c", FORKS], port=4711)
    process = await local.launch("a", line, log)
    process._end.cancel()  # its gateway is dead
    while not log.tail(1):  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process._child is not None
    process._child.wait()
    assert members(process.pid) != []
    assert await local_launcher(tmp_path).adopt("a", line, {}, LogRing()) is None
    assert members(process.pid) == []


async def test_where_the_launch_had_not_begun_there_is_nothing_to_find(tmp_path: Path) -> None:
    assert await local_launcher(tmp_path).adopt("a", LINE, {}, LogRing()) is None
    assert os.listdir(tmp_path) == []


async def test_a_launcher_that_fails_to_adopt_does_not_keep_the_gateway_from_starting(
    state_file: StateFile, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(Witness):
        async def adopt(self, *given: Any) -> Any:
            raise KeyError("pid")

    await launches(Witness(state_file, Process()), state_file).launch("a", LINE, LogRing())
    failing = launches(Fails(state_file, None), state_file)
    assert await failing.adopt("a", LINE, LogRing()) is None
    assert on_disk(state_file) == {}
    assert "Fails of host 'local' failed to take over a" in caplog.text
    assert "Traceback" in caplog.text


async def test_an_engine_has_a_record_until_it_has_ended(state_file: StateFile) -> None:
    first: Any = Process()
    second: Any = Process()
    witness = Witness(state_file, first)
    launcher = launches(witness, state_file)
    await launcher.launch("a", LINE, LogRing())
    witness._process = second
    await launcher.launch("a", LINE, LogRing())
    launcher.ended(first)
    assert on_disk(state_file) == {"a": {"pid": 1}}, "it is that of a later engine"
    launcher.ended(second)
    launcher.ended(second)
    assert on_disk(state_file) == {}
