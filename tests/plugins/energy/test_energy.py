"""Energy is read from counters, shared by the tokens in flight, and added to usage and metrics."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from enginehouse.callers import UsageRow
from enginehouse.rescheduling import RequestView
from enginehouse.runtime import Clock
from enginehouse_callers.sqlite_usage import SqliteUsage
from enginehouse_energy.meters import Nvml, Rapl
from enginehouse_energy.service import IDLE, JOULES, Energy, Share, split, used
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.fake_service_gateway import FakeGatewayRequest, FakeServiceGateway
from enginehouse_kit.gateway import RunningGateway
from tests.support.backend_status import backend_status
from tests.support.fake_clock import FakeClock


def test_energy_is_shared_by_tokens_and_idle_apart() -> None:
    ann, bob = Share("local", "m", "ann"), Share("local", "m", "bob")
    assert split(12.0, [(ann, 100), (bob, 300), (ann, 200)]) == {ann: 6.0, bob: 6.0}
    assert split(4.0, [(ann, 0)]) == {ann: 4.0}
    assert split(4.0, []) == {IDLE: 4.0}


def test_a_device_that_is_new_or_begins_again_counts_from_the_next_reading() -> None:
    assert used({}, {"gpu-0": 1000.0}) == 0
    assert used({"gpu-0": 1000.0, "gone": 1.0}, {"gpu-0": 1010.0, "gpu-1": 50.0}) == 10.0
    assert used({"gpu-0": 1000.0}, {"gpu-0": 3.0}) == 0


def zone(folder: Path, name: str, microjoules: int, label: str = "package-0") -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "name").write_text(f"{label}\n")
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")
    (folder / name / "max_energy_range_uj").write_text("10000000\n")


def test_counters_of_processors_begin_again_and_parts_of_packages_are_not_added(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 9_000_000)
    zone(tmp_path, "intel-rapl:0:0", 1)
    zone(tmp_path, "intel-rapl:1", 1, "psys")  # the whole machine
    meter = Rapl(tmp_path)
    assert meter.read() == {"intel-rapl:0": 0.0}
    zone(tmp_path, "intel-rapl:0", 1_000_000)
    assert meter.read() == {"intel-rapl:0": 2.0}


def test_processors_whose_counters_may_not_be_read_are_left_out_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zone(tmp_path, "intel-rapl:0", 0)
    (tmp_path / "intel-rapl:0/energy_uj").unlink()
    meter = Rapl(tmp_path)
    assert [meter.read(), meter.read()] == [{}, {}]
    assert caplog.text.count("left out") == 1


class FakeLibrary(ModuleType):
    """NVIDIA's library with two GPUs, of which the second has no energy counter."""

    NVMLError = RuntimeError

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if handle == 1:
            raise self.NVMLError("not supported")
        return 5000

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 100_000


def test_a_gpu_without_a_counter_counts_by_its_power(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeLibrary("pynvml"))
    times = iter([0.0, 2.0])
    meter = Nvml(lambda: next(times))
    assert meter.read() == {"gpu-0": 5.0, "gpu-1": 0.0}
    assert meter.read() == {"gpu-0": 5.0, "gpu-1": 200.0}


def test_a_gpu_that_tells_nothing_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library = FakeLibrary("pynvml")

    def fail(handle: int) -> int:
        raise library.NVMLError("not supported")

    monkeypatch.setattr(library, "nvmlDeviceGetPowerUsage", fail)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    meter = Nvml()
    assert [meter.read(), meter.read()] == [{"gpu-0": 5.0}] * 2
    assert caplog.text.count("The energy of gpu-1 is left out: not supported") == 1


class Steps:
    """A meter with 10 joules more at each reading."""

    def __init__(self) -> None:
        self.joules = 0.0

    def read(self) -> Mapping[str, float]:
        self.joules += 10
        return {"gpu-0": self.joules}


def request(caller: str, backend: str, prompt: int, output: int, pieces: int | None = 1) -> Any:
    view = RequestView(id="r", prompt_tokens=prompt)
    read = {"output_tokens": output}
    return FakeGatewayRequest(backend=backend, caller=caller, pieces=pieces, seen=view, read=read)


async def test_other_work_is_done_while_streams_are_read() -> None:
    clock, turns, done = FakeClock(), list[None](), list[int]()

    class SlowToRead(FakeGatewayRequest, kw_only=True):
        def view(self, *, streams: bool) -> RequestView:
            done.append(len(turns))
            asyncio.get_running_loop().call_soon(turns.append, None)
            clock.stall(0.01)
            return self.seen

    gateway = FakeServiceGateway(clock=Clock(clock.now, lambda: 7300.0))
    gateway.statuses = [backend_status(name="here")]
    gateway.live = [SlowToRead(backend="here", pieces=1) for _ in range(3)]
    service = Energy(Energy.Config(), [Steps()])
    service.prepare(gateway)
    service.start(gateway)
    [(_, sample)] = gateway.calls
    for _ in range(2):
        made = sample()
        assert made is not None
        await made
    assert done == [0, 1, 2]
    gateway.close()


def test_requests_of_this_machine_share_what_a_second_took() -> None:
    async def whole() -> None:
        gateway = FakeServiceGateway(clock=Clock(epoch=lambda: 7300.0))
        gateway.statuses = [
            backend_status(name="here", url="http://127.0.0.1:1"),
            backend_status(name="launched"),
            backend_status(name="away", url="http://gpu:1"),
        ]
        service = Energy(Energy.Config(), [Steps()])
        service.prepare(gateway)
        service.start(gateway)
        [(_, sample)] = gateway.calls
        gateway.live = [
            request("ann", "here", 100, 20),
            request("bob", "launched", 30, 0),
            request("eve", "away", 1000, 0),
            request("waits", "here", 1000, 0, pieces=None),
        ]
        for _ in range(2):  # the first reading is where counting begins
            made = sample()
            assert made is not None
            await made
        gateway.close()
        assert service.measure() == {JOULES: [(Share("local", "m", "ann"), 8.0), (Share("local", "m", "bob"), 2.0)]}
        assert [(row.hour, row.key, row.model, row.wh) for row in gateway.usage] == [
            (7200, "ann", "m", 8 / 3600),
            (7200, "bob", "m", 2 / 3600),
        ]
        gateway.live = []
        made = sample()
        assert made is not None
        await made
        assert service.measure()[JOULES][-1] == (IDLE, 10.0)  # type: ignore[index]
        assert len(gateway.usage) == 2

    asyncio.run(whole())


def test_a_database_of_before_gets_the_energy(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "usage.sqlite") as connection:
        connection.execute(
            "CREATE TABLE usage (hour INTEGER, key TEXT, model TEXT, user TEXT, requests INTEGER, failed INTEGER, "
            "tokens_in INTEGER, tokens_cached INTEGER, tokens_out INTEGER, seconds REAL, cost REAL, "
            "PRIMARY KEY (hour, key, model, user)) WITHOUT ROWID"
        )
        connection.execute("INSERT INTO usage VALUES (3600, 'ann', 'm', '', 1, 0, 2, 0, 3, 0.5, 0.25)")
    connection.close()
    store = SqliteUsage()
    store.prepare(tmp_path)
    store.add([UsageRow(3600, "ann", "m", "", wh=1.5)], [])
    assert store.usage(0, 7200) == [UsageRow(3600, "ann", "m", "", 1, 0, 2, 0, 3, 0.5, 0.25, 1.5)]
    store.close()


def test_a_gateway_tells_who_used_how_much(tmp_path: Path) -> None:
    counters = tmp_path / "rapl"
    zone(counters, "intel-rapl:0", 0)
    with SimEngine("m", tpot="50ms") as engine:
        config = f"""
[services.energy]
rapl = "{counters}"
[backends.a]
driver = "sim"
url = "{engine.url}"
models = ["m"]
[[auth.keys]]
name = "ann"
key = "secret-of-ann"
[[auth.keys]]
name = "ops"
key = "secret-of-ops"
admin = true
"""
        with RunningGateway(config, key="secret-of-ops") as gateway:
            gateway.until_health(a="healthy")
            ann = {"authorization": "Bearer secret-of-ann"}
            ops = {"authorization": "Bearer secret-of-ops"}
            body = {"model": "m", "prompt": "x", "max_tokens": 1000, "stream": True, "ignore_eos": True}
            spent = 0
            with httpx.stream("POST", f"{gateway.url}/v1/completions", json=body, headers=ann, timeout=60) as answer:
                assert answer.status_code == 200

                def is_told(_: object) -> bool:
                    nonlocal spent
                    spent += 500_000
                    zone(counters, "intel-rapl:0", spent)
                    page = httpx.get(f"{gateway.url}/metrics", headers=ops, timeout=30).text
                    return 'enginehouse_energy_joules_total{host="local",key="ann",model="m"}' in page

                gateway.until(is_told)
            usage = httpx.get(f"{gateway.url}/api/usage", headers=ops, timeout=30).json()
            assert usage["total"]["wh"] > 0
