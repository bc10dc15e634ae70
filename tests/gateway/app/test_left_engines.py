"""What becomes of engines that an earlier gateway has left, and that nobody wants."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from enginehouse import ReplicaState
from enginehouse.app import Gateway
from enginehouse.app.config_change import ConfigChange
from enginehouse.config.scheduling import SchedulingSettings
from enginehouse.config.schema import Config, HostSettings, ModelSettings
from enginehouse.domain.errors import LoadFailed
from enginehouse.engines.state_file import EngineRecord, Sleepers, StateFile
from enginehouse.interfaces.services import FoundBackend
from tests.support.fake_engines import FakeLauncher, FakeProcess, ScriptedDriver
from tests.support.registries import of_acme, registry_with
from tests.support.waiting import settled, until


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


class Upgrade:
    """A gateway with the model ``m``, whose engine can sleep, and another one that takes over from it.

    Both have another model ``n``, for which ``m`` must make room by the swapper ``group``. ``preload``: that of ``n``
    in gateways made from now on. ``drained``: when the first one has ended.
    """

    preload = False

    def __init__(self, folder: Path, swapper: str = "group") -> None:
        self.folder, self.launcher, self.driver = folder, FakeLauncher(), ScriptedDriver()
        self.scheduling = SchedulingSettings(swapper=swapper)
        self.driver.sleeps = self.driver.wakes = True
        self.old = self._gateway(StateFile(folder))
        self.drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _gateway(self, state_file: StateFile, drained: asyncio.Future[None] | None = None) -> Gateway:
        registry = registry_with("launcher", "given", lambda: self.launcher, instead_of="sglang")
        registry.add([of_acme("driver", "scripted", lambda: self.driver)])
        model = ModelSettings(driver="scripted", command="engine", host=["rack"], idle="sleep")
        other = ModelSettings(driver="scripted", command="engine", host=["rack"], preload=self.preload)
        models, hosts = {"m": model, "n": other}, {"rack": HostSettings(launcher="given")}
        gateway = Gateway(Config(hosts=hosts, models=models, scheduling=self.scheduling), registry)
        gateway.build_hosts(state_file, drained)
        return gateway

    async def open(self) -> None:
        await self.old.start()
        await self.old.engines.load("m")
        self.launcher.running = {process.address: process for process in self.launcher.launched}

    def forbid_sleep(self) -> None:
        """Change the configuration of the first one, so that ``m`` may not sleep any more."""
        current, models = self.old.current, self.old.config.models
        model = msgspec.structs.replace(models["m"], idle="stop")
        config = msgspec.structs.replace(self.old.config, models={**models, "m": model})
        change = ConfigChange(current, current.joined.joined_to(config))
        change.work_out()
        change.complete()
        current.put_in_force(change)

    async def take_over(self) -> Gateway:
        new = self._gateway(StateFile(self.folder, os.dup(await self.old.pause())), self.drained)
        await new.start()
        await until(lambda: state_of(new) is ReplicaState.READY)
        return new

    async def fail(self, new: Gateway) -> None:
        new.give_up()
        await new.stop()
        await self.old.resume()

    async def close(self) -> None:
        assert len(self.launcher.launched) == 1
        await self.old.stop()


def state_of(gateway: Gateway) -> ReplicaState:
    (candidate,) = gateway.fleet.snapshot.candidates("m")
    return candidate.state


async def test_an_engine_that_a_gateway_has_woken_which_failed_to_take_over_sleeps_again(tmp_path: Path) -> None:
    upgrade = Upgrade(tmp_path)
    await upgrade.open()
    upgrade.old.engines.rest("m")
    await until(lambda: state_of(upgrade.old) is ReplicaState.SLEEPING)
    await upgrade.fail(await upgrade.take_over())
    assert upgrade.driver.asked == ["sleep", "wake"]
    await until(lambda: state_of(upgrade.old) is ReplicaState.SLEEPING)
    assert upgrade.driver.asked == ["sleep", "wake", "sleep"]
    assert Sleepers(tmp_path).names == {"m"}
    await upgrade.old.engines.load("m")
    assert upgrade.driver.asked == ["sleep", "wake", "sleep", "wake"]
    await upgrade.close()


async def test_an_engine_that_may_no_longer_sleep_is_stopped_if_a_gateway_has_woken_it_which_failed_to_take_over(
    tmp_path: Path,
) -> None:
    upgrade = Upgrade(tmp_path)
    await upgrade.open()
    upgrade.old.engines.rest("m")
    await until(lambda: state_of(upgrade.old) is ReplicaState.SLEEPING)
    upgrade.forbid_sleep()
    await upgrade.fail(await upgrade.take_over())
    await until(lambda: state_of(upgrade.old) is ReplicaState.STOPPED)
    assert upgrade.driver.asked == ["sleep", "wake"]
    assert len(upgrade.launcher.launched[0].stops) == 1
    await upgrade.close()


async def test_an_engine_that_is_to_be_woken_meanwhile_is_not_woken_again(tmp_path: Path) -> None:
    """SGLang crashes if it is woken while it is awake."""
    upgrade = Upgrade(tmp_path)
    await upgrade.open()
    upgrade.old.engines.rest("m")
    await until(lambda: state_of(upgrade.old) is ReplicaState.SLEEPING)
    new = await upgrade.take_over()
    load = asyncio.ensure_future(upgrade.old.engines.load("m"))
    await until(lambda: state_of(upgrade.old) is ReplicaState.STARTING)
    await upgrade.fail(new)
    await load
    assert state_of(upgrade.old) is ReplicaState.READY
    assert upgrade.driver.asked == ["sleep", "wake"]
    await upgrade.close()


async def test_an_engine_that_an_earlier_gateway_still_uses_is_put_to_sleep_when_that_has_ended(
    tmp_path: Path,
) -> None:
    upgrade = Upgrade(tmp_path)
    await upgrade.open()
    new = await upgrade.take_over()
    upgrade.old.give_up()
    new.engines.rest("m")
    await settled(lambda: state_of(new))
    assert state_of(new) is ReplicaState.READY
    upgrade.drained.set_result(None)
    await until(lambda: state_of(new) is ReplicaState.SLEEPING)
    await new.stop()
    await upgrade.old.stop()


async def test_an_engine_that_an_earlier_gateway_still_uses_makes_no_room_for_another_one(tmp_path: Path) -> None:
    upgrade = Upgrade(tmp_path)
    await upgrade.open()
    new = await upgrade.take_over()
    upgrade.old.give_up()
    load = asyncio.ensure_future(new.engines.load("n"))
    await settled(lambda: len(upgrade.launcher.launched[0].stops))
    assert not upgrade.launcher.launched[0].stops
    upgrade.drained.set_result(None)
    await load
    assert [len(each.stops) for each in upgrade.launcher.launched] == [1, 0]
    await new.stop()
    await upgrade.old.stop()


async def test_an_engine_that_an_earlier_gateway_still_uses_is_unloaded_when_that_has_ended(tmp_path: Path) -> None:
    upgrade = Upgrade(tmp_path)
    await upgrade.open()
    new = await upgrade.take_over()
    upgrade.old.give_up()
    unload = asyncio.ensure_future(new.engines.unload(["m"]))
    await settled(lambda: len(upgrade.launcher.launched[0].stops))
    assert not upgrade.launcher.launched[0].stops
    upgrade.drained.set_result(None)
    await unload
    assert len(upgrade.launcher.launched[0].stops) == 1
    await new.stop()
    await upgrade.old.stop()


async def test_a_model_that_is_unloaded_while_another_one_makes_room_for_it_is_not_loaded(tmp_path: Path) -> None:
    upgrade = Upgrade(tmp_path)
    await upgrade.open()
    new = await upgrade.take_over()
    upgrade.old.give_up()
    load = asyncio.ensure_future(new.engines.load("n"))
    await settled(lambda: new.engines.waiting())
    await new.engines.unload(["n"])
    with pytest.raises(LoadFailed, match="was unloaded while"):
        await load
    upgrade.drained.set_result(None)
    await settled(lambda: len(upgrade.launcher.launched))
    assert [each.stops for each in upgrade.launcher.launched] == [[]]
    await new.stop()
    await upgrade.old.stop()


async def test_a_sleeping_model_that_is_unloaded_while_another_one_makes_room_for_it_is_not_loaded(
    tmp_path: Path,
) -> None:
    upgrade = Upgrade(tmp_path)
    engines, launched, may_stop = upgrade.old.engines, upgrade.launcher.launched, asyncio.Event()
    await upgrade.open()
    launched[0].bytes = 100
    engines.rest("m")
    await until(lambda: engines.memory()[0].used == 100)
    await engines.load("n")
    stop = launched[1].stop

    async def stop_later(timeout: float) -> None:
        await may_stop.wait()
        await stop(timeout)

    launched[1].stop = stop_later  # type: ignore[method-assign]
    load = asyncio.ensure_future(engines.load("m"))
    await settled(lambda: engines.running())
    await engines.unload(["m"])
    with pytest.raises(LoadFailed, match="was unloaded while"):
        await load
    may_stop.set()
    await until(lambda: not engines.running())
    await settled(lambda: len(launched))
    assert len(launched) == 2
    await upgrade.old.stop()


@pytest.mark.parametrize(("swapper", "launched"), [("group", 1), ("memory", 2)])
async def test_a_gateway_that_takes_over_preloads_only_what_needs_no_room(
    swapper: str, launched: int, tmp_path: Path
) -> None:
    """The host has no budget, so the swapper ``memory`` stops nothing."""
    upgrade = Upgrade(tmp_path, swapper)
    await upgrade.open()
    upgrade.preload = True
    new = await upgrade.take_over()
    upgrade.old.give_up()
    upgrade.drained.set_result(None)
    await until(lambda: len(upgrade.launcher.launched) == launched)
    await settled(lambda: state_of(new))
    assert state_of(new) is ReplicaState.READY
    await new.stop()
    await upgrade.old.stop()


async def test_an_engine_that_exits_makes_room_although_an_earlier_gateway_has_not_ended(tmp_path: Path) -> None:
    upgrade = Upgrade(tmp_path)
    await upgrade.open()
    new = await upgrade.take_over()
    upgrade.old.give_up()
    load = asyncio.ensure_future(new.engines.load("n"))
    await settled(lambda: len(upgrade.launcher.launched))
    upgrade.launcher.launched[0].end.set_result(1)
    await load
    assert len(upgrade.launcher.launched) == 2
    await new.stop()
    await upgrade.old.stop()


async def test_a_gateway_that_failed_to_take_over_writes_no_more(tmp_path: Path) -> None:
    gateway = Gateway(Config(), registry_with("launcher", "given", FakeLauncher, instead_of="sglang"))
    gateway.build_hosts(state_file := StateFile(tmp_path))
    await gateway.start()
    gateway.give_up()
    state_file.put("m", EngineRecord(host="rack", port=25_000, fingerprint="", handle={}))
    assert not (tmp_path / "engines.json").exists()
    await gateway.stop()
