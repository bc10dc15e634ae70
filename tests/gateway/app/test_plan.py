"""What a plan finds of the launches of models, and that a reload waits for that beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from enginehouse import Driver, ModelSource
from enginehouse.app import Gateway
from enginehouse.app import plan as plan_module
from enginehouse.app.plan import GatewayPlan
from enginehouse.app.reload import ConfigSource
from enginehouse.backends import ModelSettings
from enginehouse.config.environment import STATE_DIR
from enginehouse.config.load_config import LoadedConfig
from enginehouse.config.schema import Config, HostSettings, PluginSettings
from enginehouse.domain.errors import ConfigError, PluginError, PullFailed, ShuttingDown
from enginehouse.drivers import EngineClient, LaunchSpec, ServedModel, SupportsLaunch
from enginehouse.engines.state_file import StateFile
from enginehouse.interfaces.services import FoundBackend
from enginehouse.model_sources import PulledModel, PullProgress, PullSettings
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.outside import Outside
from tests.support.registries import registry_with
from tests.support.waiting import until, within


class Files(Driver, SupportsLaunch):
    """A driver that looks at files. ``may_look`` is set but in tests in which that takes long."""

    may_look = threading.Event()
    lines = 0

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        Files.lines += 1
        if spec.path == "nowhere":
            raise ConfigError("is not there", key=f"models.{spec.model}.path")
        assert Files.may_look.wait(20)
        return ["engine", spec.path]

    async def healthy(self, engine: EngineClient) -> bool:
        return True

    async def models(self, engine: EngineClient) -> list[ServedModel]:
        return []


@pytest.fixture
def registry() -> Registry:
    Files.may_look.set()
    Files.lines = 0
    return registry_with("driver", "files", Files, instead_of="sglang")


@pytest.fixture
def relaunched(registry: Registry) -> Callable[[ModelSettings | None, ModelSettings], set[str]]:
    """The models ``m`` whose engines are launched anew after a change."""

    def after(old: ModelSettings | None, new: ModelSettings) -> set[str]:
        hosts, before = {"h": HostSettings()}, {} if old is None else {"m": old}
        first = GatewayPlan(Config(hosts=hosts, models=before), registry, Outside(), {})
        plan = GatewayPlan(Config(hosts=hosts, models={"m": new}), registry, Outside(), first.drivers)
        plan.check_launches(before)
        return plan.relaunched

    return after


def model(**settings: object) -> ModelSettings:
    return ModelSettings(**{"driver": "files", "path": "p", **settings})  # type: ignore[arg-type]


NO_LAUNCH = ModelSettings(vision=True)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (model(), model(path="q"), {"m"}),
        (model(), model(env={"A": "b"}), {"m"}),
        (model(), model(host="h"), {"m"}),
        (model(), model(gpus=[1]), {"m"}),
        (model(path="nowhere"), model(), {"m"}),
        (model(driver="sim", path=""), model(), {"m"}),
        (model(), model(priority=3), set()),
        (model(), model(stop_command="stop it"), set()),
        (NO_LAUNCH, model(), set()),
        (model(), NO_LAUNCH, set()),
        (None, model(), set()),
    ],
)
def test_engines_are_launched_anew_if_their_launch_differs(
    relaunched: Callable[..., set[str]], old: ModelSettings | None, new: ModelSettings, expected: set[str]
) -> None:
    assert relaunched(old, new) == expected


@pytest.mark.parametrize("old", [None, model()])
def test_a_model_that_cannot_be_launched_is_refused(
    relaunched: Callable[..., set[str]], old: ModelSettings | None
) -> None:
    with pytest.raises(ConfigError, match=r"models\.m\.path"):
        relaunched(old, model(path="nowhere"))


def test_a_model_that_has_not_changed_is_not_asked_for_again(relaunched: Callable[..., set[str]]) -> None:
    assert relaunched(model(path="nowhere"), model(path="nowhere")) == set()
    assert Files.lines == 0


async def test_a_start_looks_at_each_model_as_often_however_many_hosts_there_are(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    backends = ModelSettings.backends

    def counted(self: ModelSettings, name: str) -> Mapping[str, str]:
        nonlocal looks
        looks += 1
        return backends(self, name)

    monkeypatch.setattr(ModelSettings, "backends", counted)

    def looks_with(hosts: int) -> int:
        nonlocal looks
        looks, names = 0, [f"h{number}" for number in range(hosts)]
        config = Config(hosts=dict.fromkeys(names, HostSettings()), models={name: model(host=name) for name in names})
        gateway = Gateway(config, registry)
        gateway.build_hosts(StateFile(tmp_path / str(hosts)))
        return looks

    assert looks_with(20) == 2 * looks_with(10)


def test_a_model_may_have_the_sign_between_models_and_backends_in_its_name(registry: Registry) -> None:
    gateway = Gateway(Config(models={"a@b": model(replicas=2), "b": model()}), registry)
    managed = gateway.current.context.managed("local")
    assert [each.backend for each in managed.values()] == ["a@b", "a@b-2", "b"]


class Changing:
    """A gateway whose next configuration has the model ``m`` at another path."""

    def __init__(self, registry: Registry) -> None:
        self.path = "p"
        self.gateway = Gateway(self._read().config, registry, source=ConfigSource(self._read, None))

    def _read(self) -> LoadedConfig:
        return LoadedConfig(Config(models={"m": model(path=self.path)}), None, ())

    async def begin(self) -> asyncio.Task[object]:
        """Begin a reload whose driver looks at files until ``Files.may_look``."""
        Files.may_look.clear()
        Files.lines = 0
        self.path = "q"
        reload = asyncio.ensure_future(self.gateway.reloader.reload())
        await until(lambda: Files.lines)
        return reload


@pytest.fixture
async def changing(registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Changing]:
    monkeypatch.setenv(STATE_DIR, str(tmp_path))
    it = Changing(registry)
    await it.gateway.start()
    yield it
    Files.may_look.set()
    await it.gateway.stop()


async def test_a_driver_that_looks_at_files_holds_nobody_up(changing: Changing) -> None:
    reload = await changing.begin()  # the event loop has gone on
    assert changing.gateway.config.models["m"].path == "p"
    Files.may_look.set()
    await reload
    assert changing.gateway.config.models["m"].path == "q"


async def test_a_backend_that_joins_during_a_reload_stays(changing: Changing) -> None:
    reload, current = await changing.begin(), changing.gateway.current
    current.joined.found = {"found": FoundBackend(url="http://127.0.0.1:9")}
    current.rejoin()
    Files.may_look.set()
    await reload
    assert (list(current.config.backends), current.config.models["m"].path) == (["found"], "q")


async def test_a_reload_ends_however_fast_services_change_the_configuration(
    changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, loop, command = changing.gateway.current, asyncio.get_running_loop(), Files.command
    changes: list[asyncio.Handle] = []

    def changing_meanwhile(self: Files, spec: LaunchSpec) -> Sequence[str] | None:
        if threading.current_thread() is not threading.main_thread():
            changes.append(loop.call_soon_threadsafe(current.rejoin))
        return command(self, spec)

    monkeypatch.setattr(Files, "command", changing_meanwhile)
    changing.path = "q"
    await within(changing.gateway.reloader.reload())
    assert current.config.models["m"].path == "q"
    assert changes


@pytest.mark.parametrize("end", ["reloader.close", "refuse_new"])
async def test_a_gateway_that_ends_during_a_reload_is_not_changed(changing: Changing, end: str) -> None:
    reload = await changing.begin()
    attrgetter(end)(changing.gateway)()
    Files.may_look.set()
    with pytest.raises(ShuttingDown):
        await reload
    assert changing.gateway.config.models["m"].path == "p"


async def test_a_driver_that_hangs_is_named_and_holds_up_no_later_reload(
    changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginehouse.app.reload.LONGEST_S", 0.01)
    hanging = await changing.begin()
    with pytest.raises(PluginError, match=r"plugin 'acme' .*the driver 'files' hangs: it has not returned for 0\.01 s"):
        await hanging
    Files.may_look.set()
    monkeypatch.setattr("enginehouse.app.reload.LONGEST_S", 20)
    await changing.gateway.reloader.reload()
    assert changing.gateway.config.models["m"].path == "q"


async def test_a_driver_that_hangs_when_it_looks_for_files_is_told_and_holds_nobody_up(
    changing: Changing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_return = threading.Event()
    monkeypatch.setattr(Files, "why_not", lambda *_: may_return.wait(20) and "", raising=False)
    monkeypatch.setattr(plan_module, "LONGEST_S", 0.2)
    changing.path = "q"
    await within(changing.gateway.reloader.reload())
    assert "models.m: its driver cannot tell whether the engine may start: 'files' has not returned" in caplog.text
    may_return.set()


async def test_engines_share_downloads_over_reloads(changing: Changing) -> None:
    current = changing.gateway.current
    before, changing.path = current.context, "q"
    await changing.gateway.reloader.reload()
    assert current.context is not before
    assert current.context.downloads is before.downloads


class Mirror(ModelSource):
    class Config(msgspec.Struct):
        url: str = ""

    seen: ClassVar[list[str]] = []

    def __init__(self, config: Config) -> None:
        self._config = config

    def takes(self, name: str) -> bool:
        self.seen.append(self._config.url)
        return False

    def pull(self, name: str, settings: PullSettings, folder: Path, progress: PullProgress) -> PulledModel:
        raise NotImplementedError


async def test_downloads_use_the_parameters_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_DIR, str(tmp_path))
    url = "http://old"

    def read() -> LoadedConfig:
        return LoadedConfig(Config(plugins=PluginSettings(parameters={"mirror": {"url": url}})), None, ())

    registry = registry_with("model_source", "mirror", Mirror, instead_of="pull")
    gateway = Gateway(read().config, registry, source=ConfigSource(read, None))
    downloads = gateway.current.context.downloads
    assert downloads is not None
    await gateway.start()
    url = "http://new"
    await gateway.reloader.reload()
    with pytest.raises(PullFailed):
        await downloads.fetch("m", PullSettings(folder=str(tmp_path)), lambda done, total: None)
    assert Mirror.seen == ["http://new"]
    await gateway.stop()
