from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from enginehouse_local import log_file
from enginehouse_local.log_file import LogFile
from tests.support.waiting import within

Run = Callable[[Coroutine[Any, Any, None]], None]


class Output:
    def __init__(self) -> None:
        self.text = b""
        self.followed = False

    def write(self, data: bytes) -> None:
        self.text += data


@pytest.fixture
def output() -> Output:
    return Output()


@pytest.fixture
def log(tmp_path: Path, output: Output) -> Iterator[LogFile]:
    log = LogFile(tmp_path / "log", output, fresh=True, limit=1000)
    yield log
    log.close()


def test_what_is_printed_is_read_on_and_only_the_user_may_see_it(log: LogFile, output: Output) -> None:
    assert not log.read()
    os.write(log.descriptor, b"one\n")
    assert log.read()
    os.write(log.descriptor, b"two\n")
    log.read()
    assert output.text == b"one\ntwo\n"
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_the_file_is_cut_back_and_nothing_is_lost(log: LogFile, output: Output) -> None:
    lines = [b"%d" % n * 20 + b"\n" for n in range(1000)]
    sizes = []
    for line in lines:
        os.write(log.descriptor, line)
        log.read()
        log.read()
        sizes.append(log.path.stat().st_size)
    assert output.text == b"".join(lines)
    assert max(sizes) < 1000
    assert sizes.count(0) > 10


def test_the_file_is_cut_back_when_the_engine_pauses_or_has_printed_too_much(log: LogFile) -> None:
    sizes = []
    for _ in range(5):
        os.write(log.descriptor, b"x" * 999 + b"\n")
        log.read()
        sizes.append(log.path.stat().st_size)
    log.read()
    assert sizes == [1000, 2000, 3000, 0, 1000]
    assert log.path.stat().st_size == 0


def test_what_comes_too_quickly_is_passed_over_and_told(log: LogFile, output: Output) -> None:
    os.write(log.descriptor, b"unfinished")
    log.read()
    os.write(log.descriptor, b"x" * 300_000 + b"\nlast\n")
    log.read()
    first, told, *_, last = output.text.split(b"\n")[:-1]
    assert (first, last) == (b"unfinished", b"last")
    assert told == b"[... %d bytes skipped: printed too quickly ...]" % (300_006 - 256 * 1024)
    assert log.path.stat().st_size == 0


def test_a_log_taken_over_begins_with_what_is_there(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    taken_over = LogFile(path, output, fresh=False)
    os.write(taken_over.descriptor, b"after\n")
    taken_over.close()
    assert output.text == b"before\nafter\n"
    assert not path.exists()


def test_an_engine_started_anew_has_a_new_log(tmp_path: Path, output: Output) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    LogFile(path, output, fresh=True).close()
    assert output.text == b""


class Watched(LogFile):
    """Counts the times that it was read."""

    reads = 0

    def read(self) -> bool:
        self.reads += 1
        return super().read()


async def test_it_is_read_when_something_was_printed_and_else_left_alone(tmp_path: Path, output: Output) -> None:
    log = Watched(tmp_path / "log", output, fresh=True)
    output.followed = True
    following = asyncio.ensure_future(log.follow())
    for line in (b"one\n", b"two\n"):
        printed = asyncio.Event()
        log.on_print = printed.set
        os.write(log.descriptor, line)
        await within(printed.wait())
    assert output.text == b"one\ntwo\n"
    for _ in range(100):  # until its last look has found nothing
        await asyncio.sleep(0)
    following.cancel()
    await asyncio.wait({following})
    assert log.reads <= 6
    log.close()


@pytest.mark.parametrize(("followed", "shortest"), [(False, 0.05), (True, 0.004)])
def test_without_events_it_is_read_at_intervals(
    followed: bool,
    shortest: float,
    in_virtual_time: Run,
    tmp_path: Path,
    output: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_file, "_watch", lambda path: None)
    log = Watched(tmp_path / "log", output, fresh=True)
    output.followed = followed

    async def scenario() -> None:
        following = asyncio.ensure_future(log.follow())
        await asyncio.sleep(10)
        assert log.reads <= 2 * 10 / (0.1 + shortest) + 2
        os.write(log.descriptor, b"news\n")
        await asyncio.sleep(0.1 + shortest + 0.001)
        assert output.text == b"news\n"
        following.cancel()

    in_virtual_time(scenario())
    os.close(log.descriptor)
