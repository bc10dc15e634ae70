"""What changes between two configurations, as diff_configs tells it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from textwrap import dedent

import pytest

from enginehouse.app.config_diff import Changes, ConfigDiff, diff_configs, differences
from enginehouse.config.load_config import load_config
from enginehouse.config.schema import Config

Read = Callable[[str], Config]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_text(text: str) -> Config:
        file = tmp_path / "enginehouse.toml"
        file.write_text(dedent(text))
        return load_config(file, {"TOKEN": "t"}).config

    return read_text


def diff(
    old: Config, new: Config, *, relaunched: Collection[str] = (), fixed: Collection[str] = ()
) -> tuple[ConfigDiff, Config]:
    return diff_configs(old, new, relaunched, fixed)


def test_nothing_changes_between_a_configuration_and_itself(read: Read) -> None:
    text = (
        "[models.a]\npath = 'a'\n[backends.b]\nurl = 'http://b'\napi_key = 'env:TOKEN'\n[routing]\nstrategy = 'random'"
    )
    assert diff(read(text), read(text)) == (ConfigDiff(), read(text))
    assert list(ConfigDiff().lines()) == []


OLD = """
    [backends.b-stays]
    url = "http://stays"
    [backends.b-goes]
    url = "http://goes"
    [backends.b-changes]
    url = "http://changes"
    models = ["m"]
    [models.stays]
    path = "stays"
    [models.goes]
    path = "goes"
    [models.changes]
    path = "changes"
    [models.relaunched]
    path = "before"
    [models.card]
    vision = true
    [hosts.goes]
    [hosts.changes]
    memory = "1GiB"
"""
NEW = """
    [backends.b-stays]
    url = "http://stays"
    [backends.b-changes]
    url = "http://changes"
    models = ["m", "n"]
    [backends.b-comes]
    url = "http://comes"
    [models.stays]
    path = "stays"
    [models.changes]
    path = "changes"
    ttl = "1m"
    stop_command = "stop it"
    [models.relaunched]
    path = "after"
    [models.comes]
    path = "comes"
    [models.card]
    vision = false
    [hosts.comes]
    launcher = "ray"
    [hosts.changes]
    memory = "2GiB"
    [checks]
    interval = "1s"
    [routing.weights]
    priority = 60
    load = 20
"""


def test_what_comes_goes_and_changes_is_named(read: Read) -> None:
    changes, config = diff(read(OLD), read(NEW), relaunched={"relaunched"})
    assert config == read(NEW)
    assert changes.hosts == Changes(added=["comes"], removed=["goes"], changed=["changes"])
    assert changes.backends == Changes(added=["b-comes"], removed=["b-goes"], changed=["b-changes"])
    assert (changes.models.added, changes.models.removed) == (["comes"], ["goes"])
    assert changes.models.changed == ["changes", "relaunched", "card"]
    assert changes.models.relaunched == ["relaunched"]
    assert changes.settings == ["routing.weights.priority", "routing.weights.load", "checks.interval"]
    assert changes.next_launch == ["models.changes.stop_command"]
    assert changes.needs_restart == []
    assert next(changes.lines()) == "hosts added: comes"


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("", "[server]\nport = 1", "server.port"),
        ("", "[server]\nhost = '::1'", "server.host"),
        ("", "[server]\ncors = ['*']", "server.cors"),
        ("", "[telemetry]\nmetrics = false", "telemetry.metrics"),
        ("", "[plugins]\ndisabled = ['x']", "plugins.disabled"),
        ("", "[plugins.diary]\nx = 1", "plugins.diary"),
        ("[plugins.diary]\nx = 1", "", "plugins.diary"),
        ("[plugins.diary]\nx = 1", "[plugins.diary]\nx = 2", "plugins.diary"),
        ("", "[scheduling]\nscheduler = 'x'", "scheduling.scheduler"),
        ("[hosts.h]", "[hosts.h]\nlauncher = 'ray'", "hosts.h.launcher"),
        ("", "[rescheduling]\ninterval = '1s'", "rescheduling.interval"),
    ],
)
def test_what_needs_a_restart_is_told_and_stays_as_it_was(read: Read, old: str, new: str, key: str) -> None:
    before = read(old)
    changes, config = diff(before, read(new), fixed={"diary"})
    assert changes == ConfigDiff(needs_restart=[key])
    assert config == before


@pytest.mark.parametrize(
    ("new", "key"),
    [
        ("[server]\nmax_body = 1", "server.max_body"),
        ("[server]\ndrain_timeout = '1s'", "server.drain_timeout"),
        ("[server]\nwatch = true", "server.watch"),
        ("[server]\nhold_answers = '2MiB'", "server.hold_answers"),
        ("[batches]\nslots = 1", "batches"),
        ("[streams]\nheartbeat = '1s'", "streams.heartbeat"),
        ("[telemetry]\nlog_level = 'debug'", "telemetry.log_level"),
        ("[[auth.keys]]\nname = 'a'\nkey = 'b'", "auth.keys"),
        ("[timeouts]\nstall = '1s'", "timeouts.stall"),
        ("[scheduling]\nswapper = 'memory'", "scheduling.swapper"),
        ("[scheduling.groups.g]\nmembers = []", "scheduling.groups"),
        ("[scheduling.matrix.sets]\na = 'b'", "scheduling.matrix.sets"),
        ("[plugins.cache]\nx = 1", "plugins.cache"),
    ],
)
def test_what_counts_at_once_is_told(read: Read, new: str, key: str) -> None:
    changes, config = diff(Config(), read(new), fixed={"diary"})
    assert changes == ConfigDiff(settings=[key])
    assert config == read(new)


def test_no_secret_is_told(read: Read) -> None:
    key = "[[auth.keys]]\nname = 'a'\nkey = '{}'\n[backends.b]\nurl = 'http://b'\napi_key = '{}'\n"
    changes, _ = diff(read(key.format("one", "two")), read(key.format("three", "four")))
    assert changes.settings == ["auth.keys"]
    assert changes.backends.changed == ["b"]
    assert not {"one", "two", "three", "four"} & set(repr(changes).replace("'", " ").split())


@pytest.mark.parametrize("table", ["backends", "models"])
def test_the_order_of_entries_counts(read: Read, table: str) -> None:
    entries = [
        f"[{table}.{name}]\n" + ("url = 'http://x'\n" if table == "backends" else "path = 'p'\n") for name in "ab"
    ]
    old, new = read("".join(entries)), read("".join(reversed(entries)))
    assert list(differences(old, new)) == [(table,)]
    assert diff(old, new)[0] == ConfigDiff(settings=[table])


def test_the_order_of_sets_counts(read: Read) -> None:
    sets = "[scheduling.matrix.sets]\n"
    old, new = read(sets + "x = 'a'\ny = 'b'"), read(sets + "y = 'b'\nx = 'a'")
    assert diff(old, new)[0].settings == ["scheduling.matrix.sets"]
