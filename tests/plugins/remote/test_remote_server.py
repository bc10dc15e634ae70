from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from enginehouse.backends import LoadingBackend
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.replica import ReplicaState
from enginehouse.drivers import EngineClient, EventClient, LoadedModel, LoadNews, SupportsLoading
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.errors import LoadFailed, NotEnoughMemory
from enginehouse.interfaces.driver_support import support_of
from enginehouse.interfaces.launchers import Exit
from enginehouse.launchers import EngineProcess
from enginehouse.telemetry.log_ring import LogRing
from enginehouse_remote.server import RemoteServer
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver
from tests.support.host_launchers import launches
from tests.support.virtual_time import Run
from tests.support.waiting import settled, within


class LoadingDriver(ScriptedDriver, SupportsLoading):
    """A server that loads what it is told to, after ``rounds`` questions."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, int | None] = {}
        self.error: Exception | None = None
        self.answer = asyncio.Event()
        self.answer.set()
        self.lists = True
        self.problem: LoadFailed | None = None
        self.on_news: Callable[[LoadNews], None] | None = None

    async def load(self, engine: EngineClient, model: str) -> None:
        if self.error is not None:
            raise self.error
        self.held[model] = 5000

    async def load_problem(self, engine: EngineClient, model: str) -> LoadFailed | None:
        return self.problem

    async def follow_loads(self, engine: EventClient, on_news: Callable[[LoadNews], None]) -> None:
        self.on_news = on_news
        await asyncio.Event().wait()

    async def unload(self, engine: EngineClient, model: str) -> None:
        self.held.pop(model, None)

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        held = dict(self.held)
        await self.answer.wait()
        return [LoadedModel(name, memory) for name, memory in held.items() if self.lists]


class RemoteSetting:
    def __init__(self) -> None:
        self.driver = LoadingDriver()
        self.found: dict[str, EngineProcess] = {}
        self.timeouts: list[float] = []
        self.server = RemoteServer(
            LoadingBackend("one", "http://one", self.driver, self._connect, 60.0, self.found.__setitem__)
        )
        self.server.discover(["a", "b"])

    def _connect(self, timeout: float) -> FakeClient:
        self.timeouts.append(timeout)
        return FakeClient({})

    async def load(self, model: str) -> EngineProcess:
        return await self.server.load(model, 60.0, LogRing())


class AnsweredOneByOne(LoadingDriver):
    """``answers``: what each question waits for, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Event] = []

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        found = [LoadedModel(name) for name in self.held]
        self.answers.append(asyncio.Event())
        await self.answers[-1].wait()
        return found


async def test_a_list_that_was_overtaken_by_a_later_one_does_not_count() -> None:
    driver = AnsweredOneByOne()
    backend = LoadingBackend("one", "http://one", driver, lambda _: FakeClient({}), 60.0, lambda *_: None)
    server = RemoteServer(backend)
    server.discover(["a"])
    driver.held["a"] = None
    first = asyncio.ensure_future(server.refresh())
    await settled(lambda: len(driver.answers))
    driver.held.clear()
    second = asyncio.ensure_future(server.refresh())
    await settled(lambda: len(driver.answers))
    for answer, refresh in ((driver.answers[1], second), (driver.answers[0], first)):
        answer.set()
        await within(refresh)
    assert not server.loaded


def managed(scene: RemoteSetting, start_timeout: float) -> ManagedReplica:
    model = ModelSettings(start_timeout=start_timeout)
    return ManagedReplica("one", "a", model, support_of(scene.driver), server=scene.server)


async def test_a_load_has_the_time_limit_of_the_configuration_in_force() -> None:
    scene = RemoteSetting()
    launcher = launches(FakeLauncher())
    supervisor = Engine(
        managed(scene, 20.0), launcher, connect=lambda address: FakeClient({}), listener=EngineListener()
    )
    supervisor.reconfigure(managed(scene, 30.0))
    await supervisor.bring_up()
    assert scene.timeouts[0] == 30.0
    await supervisor.stop()


async def test_a_server_that_hangs_while_it_unloads_is_left_at_once() -> None:
    scene = RemoteSetting()
    engine = Engine(
        managed(scene, 20.0),
        launches(FakeLauncher()),
        connect=lambda address: FakeClient({}),
        listener=EngineListener(),
    )
    await engine.bring_up()
    scene.driver.answer.clear()  # the server hangs
    stopping = asyncio.ensure_future(engine.stop())
    await settled(lambda: len(scene.timeouts))
    stopping.cancel()
    await within(engine.leave())
    assert engine.state is ReplicaState.STOPPED  # else it asks on


async def test_a_load_that_is_abandoned_when_its_model_is_listed_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the gateway would take the model for one that it still has, and never find it."""
    scene = RemoteSetting()
    loading = asyncio.ensure_future(scene.load("a"))
    listed = scene.server._is_loaded

    async def listed_and_abandoned(engine: EventClient, model: str) -> bool:
        loading.cancel()
        return await listed(engine, model)

    monkeypatch.setattr(scene.server, "_is_loaded", listed_and_abandoned)
    await asyncio.wait({loading})
    assert loading.cancelled()
    monkeypatch.undo()
    scene.found.clear()
    await scene.server.refresh()
    assert set(scene.found) == {"a"}


async def test_a_load_that_was_abandoned_leaves_the_output_of_its_successor() -> None:
    scene = RemoteSetting()
    scene.driver.lists = False
    abandoned = asyncio.ensure_future(scene.load("a"))
    await settled(lambda: len(scene.timeouts))
    log = LogRing()
    successor = asyncio.ensure_future(scene.server.load("a", 60.0, log))
    await settled(lambda: len(scene.timeouts))
    abandoned.cancel()
    await asyncio.wait({abandoned})
    scene.server._note_news(LoadNews("a", "half of it", settled=False))
    assert "half of it" in log.tail(9)
    scene.driver.lists = True
    await within(successor)


async def test_a_load_runs_until_the_server_unloads_the_model() -> None:
    scene = RemoteSetting()
    load = await scene.load("a")
    assert (load.address, await load.memory()) == ("http://one", 5000)
    end = asyncio.ensure_future(load.exited())
    await scene.server.refresh()
    assert not end.done()
    del scene.driver.held["a"]
    await scene.server.refresh()
    assert await within(end) == Exit()
    assert await load.memory() is None


async def test_an_unload_after_the_close_reports_no_model() -> None:
    scene = RemoteSetting()
    load = await scene.load("a")
    scene.driver.held["b"] = None  # somebody else loads it
    scene.server.close()
    await load.stop(10)
    assert "b" not in scene.found


async def test_a_stop_unloads_the_model() -> None:
    scene = RemoteSetting()
    load = await scene.load("a")
    await load.stop(10)
    assert scene.driver.held == {}
    assert await within(load.exited()) == Exit()
    await load.stop(10)  # nothing is left to do


async def test_an_answer_from_before_a_load_does_not_end_it() -> None:
    scene = RemoteSetting()
    scene.driver.answer.clear()
    late = asyncio.ensure_future(scene.server.refresh())
    await asyncio.sleep(0)  # it has been asked before the model was loaded
    scene.driver.held["a"] = 5000
    load = await _adopted(scene)
    end = asyncio.ensure_future(load.exited())
    scene.driver.answer.set()
    await late
    await asyncio.sleep(0)
    assert not end.done()
    end.cancel()


async def _adopted(scene: RemoteSetting) -> EngineProcess:
    answers = scene.driver.answer
    scene.driver.answer = asyncio.Event()
    scene.driver.answer.set()
    load = await scene.load("a")
    scene.driver.answer = answers
    return load


async def test_a_model_that_others_load_is_reported_until_it_is_held() -> None:
    scene = RemoteSetting()
    scene.driver.held["b"] = 7000
    await scene.server.refresh()
    first = scene.found.pop("b")
    await scene.server.refresh()
    assert scene.found.pop("b") is not first, "nobody holds it yet"
    end = asyncio.ensure_future(first.exited())
    await asyncio.sleep(0)
    await scene.server.refresh()
    assert scene.found == {}
    end.cancel()


async def test_models_of_others_are_left_alone() -> None:
    scene = RemoteSetting()
    scene.driver.held["unknown"] = 1
    await scene.server.refresh()
    assert scene.found == {}


async def test_a_failed_load_passes_on_its_reason() -> None:
    scene = RemoteSetting()
    scene.driver.error = NotEnoughMemory("no room")
    with pytest.raises(NotEnoughMemory, match="no room"):
        await scene.load("a")


def test_a_load_that_the_server_calls_done_and_never_lists_fails(in_virtual_time: Run) -> None:
    """A model that a server only passes on takes no memory there, so it is not listed."""

    async def scenario() -> None:
        scene = RemoteSetting()
        scene.driver.answers_when_loaded, scene.driver.lists = True, False
        with pytest.raises(LoadFailed, match="says that it has loaded 'a', but does not list it"):
            await scene.load("a")
        assert asyncio.get_running_loop().time() < 10

    in_virtual_time(scenario())


def test_a_wait_ends_when_the_server_reports_a_change(in_virtual_time: Run) -> None:
    async def scenario() -> None:
        scene, log, loop = RemoteSetting(), LogRing(), asyncio.get_running_loop()
        scene.driver.lists = False
        scene.server.begin()
        load = asyncio.ensure_future(scene.server.load("a", 60.0, log))
        await asyncio.sleep(7.3)
        assert scene.driver.on_news is not None
        scene.driver.on_news(LoadNews("a", "loading: 40 %", settled=False))
        await asyncio.sleep(0.01)
        assert not load.done()
        scene.driver.lists = True
        scene.driver.on_news(LoadNews("a", "loaded"))
        process = await load
        assert loop.time() == pytest.approx(7.31, abs=0.001)
        assert log.tail(2) == ["loading: 40 %", "loaded"]
        end = asyncio.ensure_future(process.exited())
        await asyncio.sleep(0.01)
        del scene.driver.held["a"]
        scene.driver.on_news(LoadNews("a", "unloaded"))
        await end
        assert loop.time() == pytest.approx(7.32, abs=0.001)
        scene.server.close()

    in_virtual_time(scenario())


async def test_a_load_that_the_server_gives_up_fails() -> None:
    scene = RemoteSetting()
    scene.driver.lists, scene.driver.problem = False, NotEnoughMemory("killed")
    with pytest.raises(NotEnoughMemory, match="killed"):
        await within(scene.load("a"))
