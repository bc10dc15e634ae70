"""What becomes of engines that an earlier gateway has left, and that nobody wants."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from enginehouse.app import Gateway
from enginehouse.config.schema import Config, HostSettings, ModelSettings
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


async def test_what_a_gateway_has_launched_that_failed_to_take_over_is_stopped_before_the_next_launch(
    tmp_path: Path,
) -> None:
    launcher = FakeLauncher()
    registry = registry_with("launcher", "given", lambda: launcher, instead_of="sglang")
    model = ModelSettings(command="engine", host=["rack"])
    gateway = Gateway(Config(hosts={"rack": HostSettings(launcher="given")}, models={"m": model}), registry)
    gateway.build_hosts(StateFile(tmp_path))
    await gateway.start()
    lock = await gateway.pause()
    other = StateFile(tmp_path, os.dup(lock))
    launcher.running["http://new"] = new = FakeProcess("http://new")
    other.put("m", EngineRecord(host="rack", port=25_000, fingerprint="", handle={"address": "http://new"}))
    other.close()
    load = asyncio.ensure_future(gateway.engines.load("m"))
    await gateway.resume()
    assert new.stops
    assert not launcher.launched
    await until(lambda: launcher.launched)
    load.cancel()
    await gateway.stop()


async def test_a_gateway_that_failed_to_take_over_writes_no_more(tmp_path: Path) -> None:
    gateway = Gateway(Config(), registry_with("launcher", "given", FakeLauncher, instead_of="sglang"))
    gateway.build_hosts(state_file := StateFile(tmp_path))
    await gateway.start()
    gateway.give_up()
    state_file.put("m", EngineRecord(host="rack", port=25_000, fingerprint="", handle={}))
    assert not (tmp_path / "engines.json").exists()
    await gateway.stop()
