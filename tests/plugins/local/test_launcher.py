from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from enginehouse.engines.launches import Ports
from enginehouse.errors import LoadFailed
from enginehouse.launchers import LaunchLine
from enginehouse.telemetry.log_ring import LogRing
from enginehouse_local.launcher import LocalProcess
from enginehouse_local.log_file import LogFile
from enginehouse_local.processes import identity, kill_group, signal_group
from enginehouse_operations.pages.logs import follow
from tests.support.launchers import local_launcher
from tests.support.waiting import within


class Engine:
    """A launched command with its log."""

    def __init__(self, process: LocalProcess, log: LogRing) -> None:
        self.process = process
        self.log = log

    async def prints(self, text: str) -> None:
        async def printed() -> None:
            async for lines in follow(lambda: {"": self.log}):
                if text in lines:
                    return

        await within(printed())


Launch = Callable[..., Awaitable[Engine]]


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launch]:
    engines: list[Engine] = []

    async def launch(*command: str, stop_command: tuple[str, ...] = (), **environment: str) -> Engine:
        log = LogRing()
        line = LaunchLine(command=command, environment=environment, port=4711, stop_command=stop_command)
        engine = Engine(await local_launcher(tmp_path).launch("tiny", line, log), log)
        engines.append(engine)
        return engine

    yield launch
    for engine in engines:
        await within(engine.process.stop(0))


async def end_of(fifo: Path) -> asyncio.Task[bytes]:
    """Ends when whoever opens ``fifo`` for writing, and all who have it from them, are gone."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    end = os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb")
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)

    async def read() -> bytes:
        try:
            return await reader.read()
        finally:
            transport.close()

    return asyncio.create_task(read())


async def test_an_engine_has_its_environment_its_group_and_no_input(launch: Launch) -> None:
    show = 'echo "$GREETING $HOME $(cat | wc -c) $(ps -o pgid= -p $$ | tr -d " ")"'
    engine = await launch("sh", "-c", show, GREETING="hello")
    assert (await within(engine.process.exited())).status == 0
    assert engine.log.tail(1) == [f"hello {os.environ['HOME']} 0 {engine.process.pid}"]
    assert engine.process.address == "http://127.0.0.1:4711"


async def test_neither_an_engine_nor_its_stop_command_gets_what_is_withheld(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAYS", "s3cret")
    seen = tmp_path / "seen"
    line = LaunchLine(
        command=["sh", "-c", "env; echo done; exec sleep 60"],
        port=1,
        stop_command=["sh", "-c", f"env > {seen}; kill ${{pid}}"],
        environment={"OWN": "own"},
        withheld={"GATEWAYS"},
    )
    log = LogRing()
    engine = Engine(await local_launcher(tmp_path).launch("tiny", line, log), log)
    await engine.prints("done")
    await within(engine.process.stop(20))
    for environment in ("\n".join(log.tail(1000)), seen.read_text()):
        assert "OWN=own" in environment
        assert "PATH=" in environment
        assert "GATEWAYS" not in environment


async def test_both_outputs_are_in_the_log_once_the_engine_has_exited(launch: Launch) -> None:
    engine = await launch("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (await within(engine.process.exited())).status == 3
    assert engine.log.tail(10) == ["out", "err"]


async def test_the_status_of_a_killed_engine_is_its_signal(launch: Launch) -> None:
    engine = await launch("sh", "-c", "kill -9 $$")
    assert (await within(engine.process.exited())).status == -9


async def test_a_command_that_cannot_be_run_fails_at_once(launch: Launch) -> None:
    with pytest.raises(LoadFailed, match=r"Model 'tiny' did not start: 'no-such-engine' cannot be run"):
        await launch("no-such-engine")


async def test_a_polite_engine_ends_in_its_own_way(launch: Launch) -> None:
    engine = await launch("sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done")
    await engine.prints("up")
    await within(engine.process.stop(15))
    assert (await engine.process.exited()).status == 7
    assert engine.log.tail(1) == ["bye"]


async def test_an_engine_that_ignores_the_signal_is_killed_with_its_grandchildren(launch: Launch, fifo: Path) -> None:
    gone = await end_of(fifo)
    grandchild = f"exec 3>{fifo}; echo up; while :; do sleep 1; done"
    engine = await launch("sh", "-c", f'trap "" TERM; sh -c "{grandchild}" & wait')
    await engine.prints("up")
    await within(engine.process.stop(0.2))
    assert (await engine.process.exited()).status == -9
    await within(gone)


async def test_what_an_engine_leaves_behind_is_killed_when_it_exits(launch: Launch, fifo: Path) -> None:
    gone = await end_of(fifo)
    grandchild = f"trap '' TERM; exec 3>{fifo}; echo up; while :; do sleep 1; done"
    engine = await launch(
        "sh", "-c", f'sh -c "{grandchild}" & trap "exit 5" USR1; echo down; while :; do sleep 0.01; done'
    )
    await engine.prints("up")
    await engine.prints("down")
    os.kill(engine.process.pid, signal.SIGUSR1)
    assert (await within(engine.process.exited())).status == 5
    await within(gone)


async def test_a_grandchild_that_left_the_group_does_not_hold_up_the_end(launch: Launch) -> None:
    leave = "import os, time; os.setsid(); print('free', flush=True); time.sleep(60)"
    engine = await launch("sh", "-c", f'{sys.executable} -c "{leave}" & echo "pid $!"; wait')
    await engine.prints("free")
    [pid] = [int(line.split()[1]) for line in engine.log.tail(10) if line.startswith("pid ")]
    try:
        await within(engine.process.stop(10))
        assert (await within(engine.process.exited())).status == -signal.SIGTERM
        assert identity(pid) is not None, "the grandchild did not outlive the engine"
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_a_flood_of_output_never_blocks_the_engine(launch: Launch) -> None:
    flood = "import sys\nfor _ in range(400): sys.stdout.write('x' * 99_999 + '\\n')\nprint('through', flush=True)"
    engine = await launch(sys.executable, "-c", flood)
    assert (await within(engine.process.exited())).status == 0
    assert engine.log.tail(1) == ["through"]
    assert any("bytes skipped" in line for line in engine.log.tail(1000))


async def test_a_stop_command_replaces_the_signal(launch: Launch, fifo: Path) -> None:
    engine = await launch(
        "sh", "-c", f"trap '' TERM; echo up; read line < {fifo}; echo got $line; exit 4",
        stop_command=("sh", "-c", f"echo stop-${{pid}} > {fifo}"),
    )  # fmt: skip
    await engine.prints("up")
    await within(engine.process.stop(15))
    assert (await engine.process.exited()).status == 4
    assert engine.log.tail(1) == [f"got stop-{engine.process.pid}"]


async def test_a_stop_command_that_hangs_is_ended_with_the_engine(launch: Launch, fifo: Path) -> None:
    gone = await end_of(fifo)
    engine = await launch(
        "sh", "-c", "echo up; while :; do sleep 1; done",
        stop_command=("sh", "-c", f"exec 3>{fifo}; while :; do sleep 1; done"),
    )  # fmt: skip
    await engine.prints("up")
    await within(engine.process.stop(0.5))
    assert (await engine.process.exited()).status == -9
    await within(gone)


@pytest.mark.parametrize(
    ("stop_command", "said"),
    [("no-such-stopper", "stop command 'no-such-stopper' cannot be run"), ("false", "stop command 'false' failed")],
)
async def test_after_a_stop_command_that_fails_the_signal_follows(stop_command: str, said: str, launch: Launch) -> None:
    engine = await launch("sh", "-c", "echo up; while :; do sleep 0.01; done", stop_command=(stop_command,))
    await engine.prints("up")
    await within(engine.process.stop(3600))
    assert (await engine.process.exited()).status == -signal.SIGTERM
    assert any(line.startswith(said) for line in engine.log.tail(5))


async def test_stopping_an_engine_that_exited_does_nothing(launch: Launch) -> None:
    engine = await launch("true")
    await within(engine.process.exited())
    await within(engine.process.stop(5))
    assert (await engine.process.exited()).status == 0


async def test_an_engine_tells_how_much_memory_it_takes_and_how_to_find_it(launch: Launch) -> None:
    hold = "import time; held = b'x' * 40_000_000; print('up', flush=True); time.sleep(60)"
    engine = await launch(sys.executable, "-S", "-c", hold)
    await engine.prints("up")
    memory = await within(engine.process.memory())
    assert memory is not None
    assert 40e6 < memory < 80e6
    assert engine.process.handle["pid"] == engine.process.pid


async def test_an_engine_whose_log_cannot_be_written_prints_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = LogRing()
    line = LaunchLine(command=("sh", "-c", "echo ready; sleep 60"), port=4711)
    process = await local_launcher(tmp_path / "missing").launch("tiny", line, log)
    engine = Engine(process, log)
    await engine.prints("ready")
    assert "cannot be written: No such file or directory" in caplog.text
    adopted = await local_launcher(tmp_path / "missing").adopt("tiny", line, process.handle, LogRing())
    assert adopted is not None, "the handle names the file"
    await within(adopted.stop(0))
    await within(process.stop(0))


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that no launcher has started."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("whose", ["foreign", "init", "own group", "nobody"])
async def test_what_is_recorded_but_no_engine_is_left_alone(
    tmp_path: Path, foreign: subprocess.Popen[bytes], whose: str
) -> None:
    pid = {"foreign": foreign.pid, "init": 1, "own group": os.getpgrp(), "nobody": 0}[whose]
    known = identity(pid) or identity(foreign.pid)
    handle = {"pid": pid, "identity": known, "log": str(tmp_path / "engine.log")}
    line = LaunchLine(command=("true",), port=4711)
    assert await local_launcher(tmp_path).adopt("tiny", line, handle, LogRing()) is None
    assert foreign.poll() is None


async def test_a_group_that_is_no_engines_gets_no_signal(foreign: subprocess.Popen[bytes]) -> None:
    for group in (-1, 0, 1, os.getpgrp()):
        await within(kill_group(group))
        signal_group(group, signal.SIGKILL)
    assert foreign.poll() is None


async def test_an_engine_that_hides_its_environment_is_found_by_its_log(tmp_path: Path) -> None:
    line = LaunchLine(command=("sh", "-c", "exec env -i sleep 60"), port=4711)
    process = await local_launcher(tmp_path).launch("tiny", line, LogRing())
    adopted = await local_launcher(tmp_path).adopt("tiny", line, process.handle, LogRing())
    assert adopted is not None
    await within(adopted.stop(0))
    await within(process.stop(0))


async def test_an_engine_without_any_log_is_not_launched_and_the_error_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, output: object) -> LogFile:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LogFile, "writable", full)
    line = LaunchLine(command=("true",), port=4711)
    with pytest.raises(LoadFailed, match="cannot be written: No space left on device"):
        await local_launcher(tmp_path).launch("tiny", line, LogRing())


async def test_an_engine_listens_from_its_first_connection_on(tmp_path: Path, fifo: Path) -> None:
    port = Ports().take()
    program = f"import socket; open({str(fifo)!r}).read(); socket.create_server(('127.0.0.1', {port})).accept()"
    line = LaunchLine(command=[sys.executable, "-c", program], port=port)
    process = await local_launcher(tmp_path).launch("tiny", line, LogRing())
    listening = asyncio.ensure_future(process.listening())
    await asyncio.wait([listening], timeout=0)
    assert not listening.done()
    await asyncio.to_thread(fifo.write_text, "now")
    await within(listening)
    await process.stop(5)
