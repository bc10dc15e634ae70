"""How far a launch walks through the code: what does not change between two launches is not done again."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

import enginehouse
from tests.support.launched_gateway import Launches, served
from tests.support.scripted_engine import scripted_engines
from tests.support.served_gateway import ServedGateway

CORE = Path(str(enginehouse.__file__)).parent
ROOTS = (CORE.parent, CORE.parent.parent / "plugins")
CLIENT_SIDE = (CORE / "api", CORE / "http")


class Walk:
    """Counts the calls of the gateway's functions, by file, from a ticket to its grant, while it is the profiler."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._began = self._ended = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (file := counted(frame.f_code.co_filename)) is None:
            return
        if file == "enginehouse/relay/queue_slot.py":
            self._began |= frame.f_code.co_name == "take"
            self._ended |= frame.f_code.co_name == "granted"
        if self._began and not self._ended:
            self.calls[file] += 1


@cache
def counted(file: str) -> str | None:
    """A file of the gateway or of its plugins, but for the client's side: it reads on while the launch begins."""
    root = next((root for root in ROOTS if Path(file).is_relative_to(root)), None)
    if root is None or any(Path(file).is_relative_to(folder) for folder in CLIENT_SIDE):
        return None
    return str(Path(file).relative_to(root))


async def launched(gateway: ServedGateway, evicts: bool) -> Walk:
    """The walk of the launch of ``m``, for which the engine of ``n`` is stopped if it ``evicts``.

    The loop's time stands still meanwhile, so that no timers fire whose calls would count.
    """
    walk, loop = Walk(), asyncio.get_running_loop()
    await gateway.gateway.engines.unload()
    if evicts:
        await gateway.gateway.engines.load("n")
    with pytest.MonkeyPatch.context() as patch:
        now = loop.time()
        patch.setattr(loop, "time", lambda: now)
        sys.setprofile(walk)
        try:
            assert (await gateway.ask()).status == 200
        finally:
            sys.setprofile(None)
    return walk


@pytest.mark.parametrize(("evicts", "most_files", "most_calls"), [(False, 39, 256), (True, 41, 359)])
async def test_a_launch_reads_no_configuration_and_stays_short(
    tmp_path: Path, evicts: bool, most_files: int, most_calls: int
) -> None:
    async with scripted_engines() as start:
        launcher = Launches((await start()).url)
        async with served(launcher, tmp_path, ("m", "n")) as gateway:
            assert (await gateway.ask()).status == 200
            gateway.gateway.every_second.stop()  # sampling is no part of a launch
            calls = (await launched(gateway, evicts)).calls
    assert not [file for file in calls if file.startswith("enginehouse/config/")], calls
    assert len(calls) <= most_files, calls
    assert calls.total() <= most_calls, calls
