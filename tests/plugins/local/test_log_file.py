from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from enginehouse_local.log_file import LogFile

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


@pytest.mark.parametrize(("followed", "longest"), [(False, 1.0), (True, 0.05)])
def test_it_is_read_quickly_while_somebody_waits_and_else_now_and_then(
    followed: bool, longest: float, in_virtual_time: Run, tmp_path: Path, output: Output
) -> None:
    times = []

    class Watched(LogFile):
        def read(self) -> bool:
            times.append(asyncio.get_running_loop().time())
            return super().read()

    log = Watched(tmp_path / "log", output, fresh=True)
    output.followed = followed

    async def scenario() -> None:
        following = asyncio.ensure_future(log.follow())
        await asyncio.sleep(20)
        times.clear()
        await asyncio.sleep(20)
        assert max(after - before for before, after in pairwise(times)) == pytest.approx(longest)
        os.write(log.descriptor, b"news\n")
        times.clear()
        await asyncio.sleep(4)
        assert min(after - before for before, after in pairwise(times)) == pytest.approx(0.05)
        following.cancel()

    in_virtual_time(scenario())
    assert output.text == b"news\n"
    os.close(log.descriptor)
