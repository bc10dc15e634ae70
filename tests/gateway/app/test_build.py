from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from enginehouse import Candidate, ConfigError, Requirements, Scorer
from enginehouse.app import Gateway, build_router
from enginehouse.app.build import build_fleet
from enginehouse.app.gateway import rehearse_start
from enginehouse.app.plan import settle
from enginehouse.backends import ModelSettings
from enginehouse.config.routing import RoutingSettings, ScorerSettings
from enginehouse.config.schema import BackendModelSettings, BackendSettings, Config, HostSettings, PluginSettings
from enginehouse.domain.errors import ConfigErrors
from enginehouse.drivers import EngineClient, LoadedModel
from enginehouse.errors import PluginFailed
from enginehouse.interfaces.driver_support import support_of
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from enginehouse_kit.drivers import LoadingDriver
from enginehouse_kit.testing import candidate, requirements
from tests.support.changed_config import prepare
from tests.support.routing import make_snapshot, take_route


class NotANumber(Scorer):
    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [math.nan] * len(candidates)


class Loads(LoadingDriver):
    async def load(self, engine: EngineClient, model: str) -> None: ...

    async def unload(self, engine: EngineClient, model: str) -> None: ...

    async def loaded(self, engine: EngineClient) -> list[LoadedModel]:
        return []


def test_scorers_of_other_distributions_are_guarded() -> None:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "geo", "module": "geo", "distribution": "geo-scorers", "version": "1"}
    registry.add([Registered(kind="scorer", type="distance", factory=NotANumber, **origin)])
    routing = RoutingSettings(strategy="weighted", scorers=[ScorerSettings(type="distance", name="near", weight=1)])
    router = build_router(Config(routing=routing), registry)
    with pytest.raises(PluginFailed, match="scorer 'near'") as caught:
        router.choose(requirements("m"), make_snapshot(candidate("a", "m"), candidate("b", "m")))
    assert caught.value.details == {"kind": "scorer", "type": "distance", "plugin": "geo", "name": "near"}


def test_a_model_may_have_a_strategy_of_its_own() -> None:
    registry = load_plugins(PluginSettings()).registry
    routing = RoutingSettings(strategy="priority_only", strategies={"own": "least_pending"})
    router = build_router(Config(routing=routing), registry)
    busy, idle = candidate("a", "own", pending=3), candidate("b", "own", priority=9)
    other, worse = candidate("a", "m", pending=3), candidate("b", "m", priority=9)
    snapshot = make_snapshot(busy, idle, other, worse)
    assert take_route(router, requirements("own"), snapshot).chosen is idle
    assert take_route(router, requirements("m"), snapshot).chosen is other
    explained = router.explain(requirements("own"), snapshot)
    assert (explained.chosen, list(explained.candidates[0].parts)) == ("own@b", ["pending", "wake_s"])


def test_an_unknown_strategy_of_a_model_falls_back_to_smart() -> None:
    registry = load_plugins(PluginSettings()).registry
    routing = RoutingSettings(strategy="session", strategies={"m": "sesion"})
    config, warnings = settle(Config(routing=routing), registry)
    assert (config.routing.strategy, config.routing.strategies) == ("session", {"m": "smart"})
    assert any("there is no strategy 'sesion'" in each and '"session"' in each for each in warnings)


def test_an_empty_strategy_falls_back_to_smart() -> None:
    registry = load_plugins(PluginSettings()).registry
    config, warnings = settle(Config(routing=RoutingSettings(strategy="", strategies={"m": ""})), registry)
    assert (config.routing.strategy, config.routing.strategies) == ("smart", {"m": "smart"})
    assert [each.partition(":")[0] for each in warnings] == ["routing.strategy", "routing.strategies.m"]


def test_a_server_that_loads_models_knows_them_by_its_own_names() -> None:
    models = {"m": BackendModelSettings(upstream="org/m")}
    config = Config(backends={"a": BackendSettings(url="http://a", driver="loads", models=models)})
    with pytest.raises(ConfigError, match=r"backends\.a\.models\.m\.upstream.*routing\.aliases"):
        build_fleet(config, drivers={"loads": support_of(Loads())})


async def test_a_start_and_a_change_tell_all_errors_at_once() -> None:
    registry = load_plugins(PluginSettings()).registry
    faulty = Config(
        backends={"a": BackendSettings(url="http://a", driver="vlm")},
        models={
            "n": ModelSettings(driver="simm"),
            "o": ModelSettings(driver="sim", source="org/o"),
            "p": ModelSettings(driver="sim", source="org/p"),
        },
        routing=RoutingSettings(filters=["helth"], scorers=[ScorerSettings(type="lod")]),
        interceptors=["answrs"],
        guards=["strict"],
        hosts={"local": HostSettings(launcher="slrm")},
    )
    keys = ["backends.a.driver", "models.n.driver", "hosts.local.launcher", "interceptors[0]", "guards[0]"]
    keys += ["routing.scorers[0]", "routing.filters", "models.o.source", "models.p.source"]
    with pytest.raises(ConfigErrors) as at_start:
        Gateway(faulty, registry)
    assert [error.key for error in at_start.value.errors] == keys
    with pytest.raises(ConfigErrors) as at_change:
        prepare(Gateway(Config(), registry), faulty)
    assert [error.key for error in at_change.value.errors] == keys


async def test_errors_of_all_parts_are_told_at_once() -> None:
    registry = load_plugins(PluginSettings()).registry
    for kind, what in (
        ("observer", "pen"),
        ("observer", "ink"),
        ("middleware", "middleware"),
        ("continuer", "continuer"),
    ):
        origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
        registry.add([Registered(kind=kind, type=f"own-{what}", factory=partial(_fail, what), **origin)])
    faulty = Config(
        routing=RoutingSettings(strategy="random", strategies={"m": "p2c"}),
        plugins=PluginSettings(parameters={"random": {"seed": "x"}, "p2c": {"seed": "y"}}),
        compat={"lama_swap": True},
    )
    with pytest.raises(ConfigErrors) as at_start:
        Gateway(faulty, registry)
    told = str(at_start.value)
    for part in (
        "plugins.random.seed",
        "plugins.p2c.seed",
        "compat.lama_swap",
        "no pen",
        "no ink",
        "no middleware",
        "no continuer",
    ):
        assert told.count(part) == 1, (part, told)
    with pytest.raises(ConfigErrors) as at_change:
        prepare(Gateway(Config(), load_plugins(PluginSettings()).registry), faulty)
    assert "plugins.random.seed" in str(at_change.value)


def _fail(what: str) -> object:
    raise RuntimeError(f"no {what}")


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[ModelSettings], list[str]]:
    """The warnings of a start with one model ``m``."""

    def of(model: ModelSettings) -> list[str]:
        caplog.clear()
        rehearse_start(Config(models={"m": model}), load_plugins(PluginSettings()).registry)
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    return of


def test_a_missing_program_and_a_missing_file_are_told_at_once(warnings: Callable[[ModelSettings], list[str]]) -> None:
    program, file = warnings(ModelSettings(driver="llamacpp", path="/m.gguf", env={"PATH": "/nowhere"}))
    assert program.startswith("models.m: there is no program 'llama-server' on the PATH (`brew install llama.cpp`")
    assert file.startswith("models.m.path: there is no file /m.gguf")


def test_a_missing_file_is_told_with_its_key(warnings: Callable[[ModelSettings], list[str]], tmp_path: Path) -> None:
    (tmp_path / "llama-server").touch(mode=0o755)
    model = ModelSettings(driver="llamacpp", path=f"{tmp_path}/m.gguf", env={"PATH": str(tmp_path)})
    problem = f"models.m.path: there is no file {tmp_path}/m.gguf (download it, or correct the path)"
    assert warnings(model) == [problem]
    (tmp_path / "m.gguf").touch()
    assert warnings(model) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "table", ['[backends.e{0}]\nurl = "http://e:{0}"\nmodels = ["m"]\n', '[models.m{0}]\ndriver = "sim"\n']
)
def test_a_start_takes_twice_as_long_for_twice_as_much(table: str) -> None:
    def calls(count: int) -> int:
        """How many functions are called until a gateway is built."""
        document = msgspec.toml.decode("".join(map(table.format, range(count))))
        config = msgspec.convert(document, Config)
        registry = load_plugins(config.plugins).registry
        called = 0

        def note(_: object, event: str, __: object) -> None:
            nonlocal called
            called += event == "call"

        sys.setprofile(note)
        try:
            rehearse_start(config, registry)
        finally:
            sys.setprofile(None)
        return called

    calls(1)  # what is done once
    few, many = calls(100), calls(400)
    assert many < 4.4 * few
