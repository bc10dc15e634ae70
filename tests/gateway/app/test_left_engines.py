"""What becomes of engines that an earlier gateway has left, and that nobody wants."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from enginehouse.app import Gateway
from enginehouse.config.schema import Config, HostSettings
from enginehouse.engines.state_file import EngineRecord, StateFile
from enginehouse.interfaces.services import FoundBackend
from tests.support.fake_engines import FakeLauncher, FakeProcess
from tests.support.registries import registry_with
from tests.support.waiting import until


@pytest.mark.parametrize("begun", [False, True])
async def test_they_are_stopped_although_their_host_has_no_models_any_more(begun: bool, tmp_path: Path) -> None:
    launcher, drained = FakeLauncher(), asyncio.get_running_loop().create_future()
    launcher.running["http://old"] = left = FakeProcess("http://old")
    state_file = StateFile(tmp_path)
    state_file.put("old", EngineRecord(host="rack", port=25_000, fingerprint="", handle={"address": "http://old"}))
    registry = registry_with("launcher", "given", lambda: launcher, instead_of="sglang")
    gateway = Gateway(Config(hosts={"rack": HostSettings(launcher="given")}), registry)
    gateway.build_hosts(state_file, drained)
    current = gateway.current
    if begun:
        await gateway.start()
    current.joined.found = {"found": FoundBackend(url="http://127.0.0.1:9")}
    current.rejoin()
    if not begun:
        await gateway.start()
    assert not left.stops, "the earlier gateway uses it"
    drained.set_result(None)
    await until(lambda: not state_file.records)
    assert left.stops
    current.rejoin()
    await gateway.stop()
