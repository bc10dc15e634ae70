from __future__ import annotations

import logging
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest

import enginehouse
from enginehouse import ConfigError, PluginError
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import LoadedPlugins, load_plugins
from tests.support.plugins import Install

SKIP = PluginSettings(on_error="skip")

GOOD = """
    class Good:
        def score(self, requirements, candidates):
            return [1] * len(candidates)

    @hookimpl
    def register_scorers(register):
        register("good", Good)
"""


def scorer_types(loaded: LoadedPlugins) -> list[str]:
    return [entry.type for entry in loaded.registry.all() if entry.kind == "scorer" and not entry.bundled]


def refused() -> str:
    with pytest.raises(PluginError) as caught:
        load_plugins(PluginSettings())
    return str(caught.value)


def test_every_bundled_plugin_loads() -> None:
    loaded = load_plugins(PluginSettings())

    assert loaded.problems == ()
    assert {plugin.entry_point for plugin in loaded.plugins if plugin.bundled} >= {"routing", "openai", "sim"}


def test_what_a_third_party_registers_is_known_with_its_origin(install: Install) -> None:
    install("shift", GOOD)

    entry = load_plugins(PluginSettings()).registry.get("scorer", "good")

    assert (entry.entry_point, entry.distribution, entry.version) == ("shift", "enginehouse-shift", "1.2.3")
    assert not entry.bundled


def test_bundled_plugins_are_loaded_first_and_the_others_by_name(install: Install) -> None:
    for name in ("zebra", "aardvark"):
        install(name, GOOD.replace("good", name))

    loaded = load_plugins(PluginSettings())

    assert [plugin.entry_point for plugin in loaded.plugins][-2:] == ["aardvark", "zebra"]
    assert all(plugin.bundled for plugin in loaded.plugins[:-2])
    assert scorer_types(loaded) == ["aardvark", "zebra"]


def test_a_disabled_plugin_is_not_even_imported(install: Install) -> None:
    install("shift", "raise RuntimeError('imported')")

    assert load_plugins(PluginSettings(disabled=["shift"])).problems == ()


def test_a_bundled_plugin_can_be_disabled() -> None:
    loaded = load_plugins(PluginSettings(disabled=["openai"]))

    assert "openai" not in [plugin.entry_point for plugin in loaded.plugins]
    assert "openai" not in loaded.registry.types("driver")


def test_with_an_allow_list_only_its_plugins_and_the_bundled_are_loaded(install: Install) -> None:
    install("zebra", GOOD)
    install("shift", GOOD.replace("good", "shift"))

    loaded = load_plugins(PluginSettings(enabled=["shift"]))

    assert scorer_types(loaded) == ["shift"]
    assert "openai" in [plugin.entry_point for plugin in loaded.plugins]
    assert scorer_types(load_plugins(PluginSettings(enabled=[]))) == []


@pytest.mark.parametrize("settings", [PluginSettings(enabled=["shfit"]), PluginSettings(disabled=["shfit"])])
def test_a_name_that_no_plugin_has_is_refused(install: Install, settings: PluginSettings) -> None:
    install("shift", GOOD)

    with pytest.raises(ConfigError, match=r"no plugin 'shfit' is installed .*did you mean .shift.\?") as caught:
        load_plugins(settings)
    assert caught.value.key == ("plugins.enabled" if settings.enabled else "plugins.disabled")


def test_a_name_that_no_plugin_has_is_a_warning_when_errors_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    loaded = load_plugins(PluginSettings(on_error="skip", disabled=["nothing"]))

    assert [problem.key for problem in loaded.unknown] == ["plugins.disabled"]
    assert "no plugin 'nothing' is installed" in caplog.text


class Editable(MetaPathFinder):
    """The finder of an editable installation: its module lies in ``folder``, which is not on ``sys.path``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [str(self._folder)]) if path is None else None


def test_a_broken_plugin_of_an_editable_installation_is_left_out_when_errors_are_skipped(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("shift", "import no_such_library")
    elsewhere = tmp_path / "src"
    elsewhere.mkdir()
    (tmp_path / "enginehouse_shift.py").rename(elsewhere / "enginehouse_shift.py")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Editable(elsewhere)])

    [broken] = load_plugins(SKIP).broken

    assert broken.entry_point == "shift"


ORIGIN = "plugin 'shift' from enginehouse-shift 1.2.3: "


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_library", "cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        (
            "@hookimpl\ndef register_filter(register): pass",
            "'register_filter' is not a hook: name it 'register_filters'",
        ),
        (
            "def register_gaurds(register): pass",
            "'register_gaurds' is not a hook: name it 'register_guards' and mark it",
        ),
        ("@hookimpl\ndef something_else(register): pass", "unknown hook 'something_else'"),
        ("@hookimpl\ndef register_filters(register, extra): pass", "extra"),
        ("@hookimpl\ndef register_filters(): pass", "'register_filters' must take the argument 'register'"),
        ("def register_filters(register): pass", "'register_filters' is not marked with '@enginehouse.hookimpl'"),
        ("@hookimpl\ndef register_filters(register): return []", "'register_filters' must return nothing"),
        ("@hookimpl\ndef register_filters(register): 1 / 0", "'register_filters' raised ZeroDivisionError"),
        (
            "@hookimpl\ndef register_filters(register): raise PluginError('no GPU')",
            "raised PluginError: plugin: no GPU",
        ),
        ("@hookimpl\ndef register_filters(register): register('', object)", "must register under a name, got ''"),
        ("@hookimpl\ndef register_filters(register): register('x', 7)", "the filter 'x' cannot be used: expected a"),
    ],
)
def test_a_plugin_that_is_wrong_is_refused_with_its_origin(install: Install, source: str, problem: str) -> None:
    install("shift", source)

    message = refused()

    assert message.startswith(ORIGIN)
    assert problem in message


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import no_such_library", "import no_such_library"),
        ("import json\n\nX = json.loads('{')", "X = json.loads"),
        ("def broken(:\n    pass", "def broken(:"),
        ("@hookimpl\ndef register_filters(register):\n    1 / 0", "    1 / 0"),
        ("def register_gaurds(register): pass", "def register_gaurds"),
        ("def register_filters(register): pass", "def register_filters"),
        (
            "class X(Guard):\n    async def befor(self): ...\n"
            "@hookimpl\ndef register_guards(register):\n    register('x', X)",
            "class X(Guard)",
        ),
    ],
)
def test_an_error_names_the_file_and_the_line(install: Install, tmp_path: Path, source: str, line: str) -> None:
    install("shift", source)
    [file] = tmp_path.glob("*shift*.py")
    number = 1 + next(place for place, text in enumerate(file.read_text().splitlines()) if text.startswith(line))

    assert refused().endswith(f"({file}:{number})")


@pytest.mark.parametrize(
    ("hook", "body", "problem"),
    [
        ("filters", "class X(Filter):\n    def keep(self, a, b): ...", "the method 'why' is missing"),
        ("filters", "class X:\n    def why(self, a, b): ...\n    def missing(self, a, b): ...", "'keep' is missing"),
        ("scorers", "class X: ...", "the method 'score' is missing"),
        ("scorers", "class X(Scorer): ...", "the method 'score' is missing"),
        ("scorers", "class X:\n    score = 7", "the method 'score' is missing"),
        ("scorers", "class X:\n    async def score(self, a, b): ...", "the method 'score' must not be async"),
        ("scorers", "class X:\n    def score(self, a): ...", "'score' must take 'requirements', 'candidates'"),
        ("scorers", "class X:\n    @staticmethod\n    def score(a): ...", "'score' must take 'requirements'"),
        ("observers", "class X:\n    def routed(self, a, b, c): ...", "the method 'swap_started' is missing"),
        ("guards", "class X(Guard):\n    async def befor(self, a, b): ...", "'befor' is nearly 'before'"),
        ("guards", "class X(Guard):\n    async def afters(self, a): ...", "'afters' is nearly 'after'"),
        ("guards", "class X(Guard):\n    def on_txt(self, a): ...", "'on_txt' is nearly 'on_text'"),
        ("guards", "class X(Guard):\n    lookback = 160", "'lookback' is nearly 'look_back'"),
        ("interceptors", "class X(Interceptor):\n    async def befor(self, a): ...", "'befor' is nearly 'before'"),
        ("interceptors", "class X(Interceptor):\n    def answers(self, a): ...", "'answers' is nearly 'answer'"),
        ("interceptors", "class X(Interceptor):\n    async def answer(self, a): ...", "'answer' must not be async"),
        ("interceptors", "class X(Interceptor):\n    def before(self, a): ...", "the method 'before' must be async"),
        ("observers", "class X(Observer):\n    def finishd(self, a): ...", "'finishd' is nearly 'finished'"),
        ("observers", "class Y(Observer):\n    def rooted(self): ...\nclass X(Y): ...", "'rooted' is nearly 'routed'"),
        ("scorers", "class X:\n    Config = dict\n    def score(self, a, b): ...", "'Config' is not a msgspec.Struct"),
    ],
)
def test_a_class_that_does_not_fit_its_interface_is_refused(
    install: Install, hook: str, body: str, problem: str
) -> None:
    install("shift", f"{body}\n\n@hookimpl\ndef register_{hook}(register):\n    register('x', X)\n")

    message = refused()

    assert message.startswith(f"{ORIGIN}the {hook[:-1]} 'x' cannot be used: ")
    assert problem in message


@pytest.mark.parametrize(
    ("hook", "body"),
    [
        ("filters", "class X(Filter):\n    def keep(self, a, b): ...\n    def why(self, a, b): ..."),
        ("scorers", "class X:\n    @staticmethod\n    def score(a, b): ..."),
        ("scorers", "class X:\n    @classmethod\n    def score(cls, *args): ..."),
        ("scorers", "class X:\n    def score(self, a, b, more=1): ..."),
        ("observers", "class X(Observer):\n    def routed(self, a, b, c): ..."),
        ("observers", "class X(Observer):\n    def finished(self, a): ...\n    def finish(self): ..."),
        ("guards", "class X(Guard):\n    def words(self): ...\n    def _befor(self): ..."),
        ("interceptors", "class X(Interceptor):\n    def before(self, a) -> 'Awaitable[None]': ..."),
        (
            "interceptors",
            "from functools import wraps\ndef same(method):\n    return wraps(method)(lambda *given: method(*given))\n"
            "class X(Interceptor):\n    @same\n    async def before(self, a): ...",
        ),
        (
            "discoverers",
            "class X:\n    def serves_at(self, *address): pass\n    async def watch(self):\n        yield {}",
        ),
        ("routes", "def X():\n    return []"),
    ],
)
def test_a_class_that_fits_in_its_own_way_is_taken(install: Install, hook: str, body: str) -> None:
    install("shift", f"{body}\n\n@hookimpl\ndef register_{hook}(register):\n    register('x', X)\n")

    assert "x" in [entry.type for entry in load_plugins(PluginSettings()).registry.all()]


@pytest.mark.parametrize(
    "requires", ["enginehouse>=9", "Enginehouse (<0.0.1)", "enginehouse[plot]>=9; python_version>'3'"]
)
def test_a_plugin_for_another_version_of_enginehouse_is_refused(
    install: Install, tmp_path: Path, requires: str
) -> None:
    install("shift", GOOD)
    require(tmp_path, requires)

    message = refused()

    assert message.startswith(f"{ORIGIN}it requires enginehouse")
    assert message.endswith(f"install a version of 'enginehouse-shift' for {enginehouse.__version__}")


@pytest.mark.parametrize(
    "requires",
    ["enginehouse", "enginehouse>=0.1", "enginehouse-extra>=9", "enginehouse>=9; extra == 'new'", "click>=1"],
)
def test_a_plugin_for_this_version_of_enginehouse_is_loaded(install: Install, tmp_path: Path, requires: str) -> None:
    install("shift", GOOD)
    require(tmp_path, requires)

    assert scorer_types(load_plugins(PluginSettings())) == ["good"]


def require(folder: Path, requirement: str) -> None:
    [metadata] = folder.glob("*.dist-info/METADATA")
    metadata.write_text(metadata.read_text() + f"Requires-Dist: {requirement}\n")


def test_a_good_plugin_is_no_warning(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("shift", GOOD)
    load_plugins(PluginSettings())

    assert caplog.messages == []


def test_a_broken_plugin_is_skipped_with_a_warning_and_stays_in_the_list(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("shift", "import no_such_library")
    install("zebra", GOOD)

    with caplog.at_level(logging.WARNING):
        loaded = load_plugins(SKIP)

    assert scorer_types(loaded) == ["good"]
    assert [(broken.entry_point, broken.distribution) for broken in loaded.broken] == [("shift", "enginehouse-shift")]
    assert f"{ORIGIN}cannot be imported" in caplog.text


def test_nothing_of_a_plugin_that_breaks_half_way_is_registered(install: Install) -> None:
    install("shift", GOOD + "\n    @hookimpl\n    def register_strategies(register):\n        1 / 0\n")

    loaded = load_plugins(SKIP)

    assert scorer_types(loaded) == []
    assert "shift" not in [plugin.entry_point for plugin in loaded.plugins]


def test_a_type_of_another_plugin_is_refused_and_the_first_keeps_it(install: Install) -> None:
    install("aardvark", GOOD)
    install("zebra", GOOD)

    loaded = load_plugins(SKIP)

    assert loaded.registry.get("scorer", "good").entry_point == "aardvark"
    assert [broken.entry_point for broken in loaded.broken] == ["zebra"]
    assert "already registered by plugin 'aardvark' from enginehouse-aardvark 1.2.3" in refused()


def test_an_entry_point_claimed_twice_is_refused_to_both(install: Install) -> None:
    install("shift", GOOD)
    install("shift", GOOD, distribution="rival", version="9")

    loaded = load_plugins(SKIP)

    assert scorer_types(loaded) == []
    assert {str(broken.problem) for broken in loaded.broken} == {
        "plugin 'shift' from enginehouse-shift 1.2.3: the entry point 'shift' is also claimed by rival 9",
        "plugin 'shift' from rival 9: the entry point 'shift' is also claimed by enginehouse-shift 1.2.3",
    }


def test_a_bundled_plugin_keeps_its_entry_point(install: Install) -> None:
    install("openai", GOOD, distribution="rival")

    loaded = load_plugins(SKIP)

    assert [broken.distribution for broken in loaded.broken] == ["rival"]
    assert "openai" in [plugin.entry_point for plugin in loaded.plugins if plugin.bundled]
