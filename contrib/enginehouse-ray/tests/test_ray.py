"""The launcher beside a real Ray cluster of two nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

pytest.importorskip("ray")

from enginehouse_ray import RayConfig, RayLauncher, RayPlacement
from enginehouse_ray.process import RayProcess
from two_nodes import FAR, NEAR, TwoNodes, may_unshare

from enginehouse.launchers import EngineNeeds, LaunchLine, Place
from enginehouse_kit.testing import check_launcher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not may_unshare(), reason="needs network namespaces"),
]

BOX = RayPlacement(resources={"gpu_box": 1}, cpus=0)
SERVER = (
    "import sys, http.server as h; print('up', flush=True); "
    "h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[2]), bind=sys.argv[1])"
)


class Output:
    followed = True

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "gateway" / "logs"
    folder.mkdir(parents=True)
    return folder


def launcher() -> RayLauncher:
    return RayLauncher(RayConfig(address=TwoNodes.address, lost_after=6.0))


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def prepared(logs: Path) -> RayLauncher:
    made = launcher()
    await made.prepare(logs)
    return made


def line(place: Place, *command: str, others: list[list[str]] | None = None) -> LaunchLine:
    words = command or (sys.executable, "-c", SERVER, place.bind, str(place.port))
    return LaunchLine(command=words, port=place.port, bind=place.bind, place=place, others=others or [])


async def placed(made: RayLauncher, name: str, options: RayPlacement, waits: Callable[[str], None] = print) -> Place:
    return await asyncio.wait_for(made.place(name, EngineNeeds(options=options), waits), 120)


async def listens(place: Place) -> bool:
    try:
        _, writer = await asyncio.open_connection(place.bind, place.port)
    except OSError:
        return False
    writer.close()
    return True


async def answers(place: Place) -> None:
    """Wait until the engine takes connections from here."""
    while not await listens(place):  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.1)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.05)


async def pid_of(process: Any, part: int = 0) -> int:
    assert isinstance(process, RayProcess)
    found = await process._cluster.ask(process.parts[part].actor, "pid")
    assert isinstance(found, int)
    return found


def test_it_keeps_the_rules_of_a_launcher(cluster: TwoNodes) -> None:
    check_launcher(launcher, timeout=120)


def test_an_engine_runs_on_the_node_that_has_what_it_needs(cluster: TwoNodes, logs: Path) -> None:
    async def scenario() -> None:
        made, output = await prepared(logs), Output()
        place = await placed(made, "box", BOX)
        assert (place.bind, place.unit, place.others) == (FAR, "zone-b", ())
        assert place.node
        missing = line(place, "/no/such/engine")
        assert f"on node {place.node}, there is no program" in await made.why_not(missing, ())
        assert "there is no file /no/model" in await made.why_not(line(place), ["/no/model"])
        process = await made.launch("box", line(place), output)
        await asyncio.wait_for(answers(place), 60)
        assert process.address == f"http://{FAR}:{place.port}"
        assert (await process.memory() or 0) > 2**20
        os.kill(await pid_of(process), signal.SIGKILL)
        how = await asyncio.wait_for(process.exited(), 20)
        assert (how.status, how.lost) == (-9, False)
        assert b"up" in output.data
        assert not await made._cluster.find("gateway/box"), "its place is free again"

    run(scenario)


def test_a_full_cluster_is_told_of_at_once_and_the_engine_waits(cluster: TwoNodes, logs: Path) -> None:
    async def scenario() -> None:
        made, said = await prepared(logs), []
        first = await placed(made, "first", BOX)
        began = time.monotonic()
        told = asyncio.Event()

        def note(why: str) -> None:
            said.append((time.monotonic() - began, why))
            told.set()

        waits = asyncio.ensure_future(placed(made, "second", BOX, note))
        await asyncio.wait_for(told.wait(), 30)
        [(after, why)] = said
        print(f"full: told after {after:.2f} s")
        assert "gpu_box 1 on a node is wanted, and the 1 nodes that have so much are full" in why
        assert after < 2
        assert not waits.done()
        await made.release(first)
        second = await asyncio.wait_for(waits, 60)
        assert second.bind == FAR
        third = asyncio.ensure_future(placed(made, "third", BOX, note))
        await asyncio.sleep(0)
        await asyncio.wait_for(until(lambda: len(said) == 2), 30)
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)
        assert not await made._cluster.find("gateway/third"), "a wait that is given up leaves nothing"
        await made.release(second)

    run(scenario)


async def measured(logs: Path) -> None:
    """Print how long the first connection of a process takes, and how late its event loop is at most meanwhile."""
    lags = [0.0]

    async def watch() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - began - 0.01)

    watching = asyncio.ensure_future(watch())
    began = time.monotonic()
    await prepared(logs)
    took = time.monotonic() - began
    watching.cancel()
    print(msgspec.json.encode([took, max(lags)]).decode(), flush=True)


def elsewhere(function: str, logs: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a function of this module, which takes ``logs``, in a process of its own."""
    program = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_ray
asyncio.run(test_ray.{function}(Path({str(logs)!r})))
"""
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False, timeout=240)


def test_nobody_waits_on_the_event_loop(cluster: TwoNodes, logs: Path) -> None:
    took, late = msgspec.json.decode(elsewhere("measured", logs).stdout.splitlines()[-1], type=tuple[float, float])
    print(f"ray.init took {took:.2f} s; the loop was late by {late * 1000:.0f} ms at most")
    assert late < 0.5, "on an idle machine it is a few milliseconds"
    assert late < took / 2


async def launched_and_killed(logs: Path) -> None:
    """Launch an engine, print its place and process, and die."""
    made = await prepared(logs)
    place = await placed(made, "stays", BOX, lambda why: None)
    process = await made.launch("stays", line(place), Output())
    await answers(place)
    print(msgspec.json.encode([place, await pid_of(process)]).decode(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_engine_outlives_its_gateway(cluster: TwoNodes, logs: Path) -> None:
    ended = elsewhere("launched_and_killed", logs)
    assert ended.returncode == -9
    place, pid = msgspec.json.decode(ended.stdout.splitlines()[-1], type=tuple[Place, int])
    assert psutil.pid_exists(pid)

    async def scenario() -> None:
        made, output = await prepared(logs), Output()
        found = await made.adopt("stays", line(place), dict(place.handle), output)
        assert found is not None
        assert await pid_of(found) == pid
        await asyncio.wait_for(answers(place), 20)
        await asyncio.wait_for(until(lambda: b"up" in output.data), 20)
        assert output.data.count(b"up") == 1
        await found.stop(5)
        assert not psutil.pid_exists(pid)
        assert await made.adopt("stays", line(place), dict(place.handle), output) is None

    run(scenario)


def test_one_engine_spans_two_nodes(cluster: TwoNodes, logs: Path) -> None:
    async def scenario() -> None:
        made, output = await prepared(logs), Output()
        place = await placed(made, "large", RayPlacement(nodes=2, cpus=1))
        assert {place.bind, *place.others} == {NEAR, FAR}
        assert place.meet_at.startswith(f"{place.bind}:")
        stays = [sys.executable, "-c", "import time; time.sleep(600)"]
        process = await made.launch("large", line(place, others=[stays]), output)
        await asyncio.wait_for(answers(place), 60)
        os.kill(await pid_of(process, 1), signal.SIGTERM)
        how = await asyncio.wait_for(process.exited(), 30)
        assert (how.status, how.lost) == (-15, False)
        assert "its process on node" in how.why
        assert not await listens(place)

    run(scenario)


def test_a_lost_node_is_told_from_an_engine_that_ended(cluster: TwoNodes, logs: Path) -> None:
    async def scenario() -> None:
        made = await prepared(logs)
        place = await placed(made, "lost", BOX)
        process = await made.launch("lost", line(place), Output())
        await asyncio.wait_for(answers(place), 60)
        began = time.monotonic()
        cluster.lose_far()
        how = await asyncio.wait_for(process.exited(), 60)
        after = time.monotonic() - began
        print(f"lost: seen after {after:.2f} s: {how.why}")
        assert how.lost
        assert place.node in how.why
        assert after < 10

    try:
        run(scenario)
    finally:
        cluster.find_far()
