"""Settings that are right but probably not meant are warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from enginehouse.app import Gateway
from enginehouse.app.plugin_instances import ConfiguredPlugins
from enginehouse.config.load_config import load_config
from enginehouse.config.schema import BackendSettings, Config, ModelSettings, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse_kit.testing import check_service
from enginehouse_offline.advice import Advice, hints, warnings
from tests.support.changed_config import prepare


class Found(NamedTuple):
    warnings: tuple[str, ...]
    hints: Sequence[str]


Advised = Callable[[str], Found]


@pytest.fixture
def advised(tmp_path: Path) -> Advised:
    """What is said of a configuration file with this text."""

    def found(text: str) -> Found:
        file = tmp_path / "enginehouse.toml"
        file.write_text(text, encoding="utf-8")
        configured = ConfiguredPlugins(lambda: load_config(file, {}).config, Registry())
        return Found(tuple(warnings(configured)), hints(configured))

    return found


def test_an_alias_of_an_alias_is_a_warning(advised: Advised) -> None:
    found = advised('[models.m]\n[routing.aliases]\na = "b"\nb = "m"')
    assert found.warnings == ('routing.aliases.a: "b" is an alias too, which is not resolved (name a model instead)',)


def test_an_address_with_the_version_is_a_warning(advised: Advised) -> None:
    found = advised('[backends.b]\nurl = "http://h/v1/"')
    assert found.warnings == ("backends.b.url: ends in /v1, which the gateway adds (remove it)",)


def test_a_backend_may_take_the_name_of_a_model_that_only_declares(advised: Advised) -> None:
    assert advised('[backends.m]\nurl = "http://h"\n[models.m]\ntools = true').warnings == ()


def test_models_that_only_a_backend_can_know_are_one_warning_for_each_table(advised: Advised) -> None:
    found = advised(
        """
        [backends.b]
        url = "http://h"
        models = ["known"]
        [routing.aliases]
        one = "a"
        two = "b"
        three = "known"
        "four-*" = "known"
        [routing.fallbacks]
        known = ["c"]
        three = ["known"]
        four-x = ["known"]
        d = ["known"]
        [scheduling.priorities]
        known = 1
        knwon = 2
        """
    )
    warning = "not in this configuration, and no backend lists models of its own"
    assert found.warnings == (
        f'routing.aliases: {warning}: "a", "b"',
        f'routing.fallbacks: {warning}: "c", "d"',
        f'scheduling.priorities: {warning}: "knwon"',
    )


def test_a_model_that_an_engine_may_list_is_no_warning(advised: Advised) -> None:
    found = advised("[backends.b]\nurl = 'http://h'\n[routing.aliases]\none = 'a'")
    assert found.warnings == ()
    hint = 'routing.aliases: not in this configuration, and an engine must list it: "a"'
    assert found.hints == [hint]


def test_rules_behind_one_that_takes_every_request_are_a_warning(advised: Advised) -> None:
    every, some = "[[routing.rules]]\nmodel = 'm'\n", "[[routing.rules]]\nmodel = 'm'\nkey = 'team'\n"
    share = "[[routing.rules]]\nmodel = 'm'\nweight = 0.5\n"
    assert advised(f"[models.m]\n{some}{share}{every}").warnings == ()
    assert advised(f"[models.m]\n{some}{every}{some}{some}").warnings == (
        "routing.rules[1]: takes every request, so no later rule counts (name a header or a key, or make it the last)",
    )


def test_an_unknown_strategy_is_left_to_the_plugins(advised: Advised) -> None:
    assert advised('[routing]\nstrategy = "whatever"').warnings == ()


async def test_a_start_and_a_reload_show_warnings(caplog: pytest.LogCaptureFixture) -> None:
    registry = load_plugins(PluginSettings()).registry
    odd = Config(backends={"b": BackendSettings(url="http://h/v1")})
    Gateway(odd, registry)
    text = "backends.b.url: ends in /v1, which the gateway adds (remove it)"
    assert text in caplog.messages
    change, _ = prepare(Gateway(Config(), registry), odd)
    assert text in change.plan.warnings


def test_it_keeps_the_rules_of_a_service() -> None:
    check_service(Advice)


@pytest.mark.parametrize(
    ("table", "variable", "exports", "told"),
    [
        ("", "otlp", False, True),
        ("", "otlp", True, False),
        ("", "none", False, False),
        ('[telemetry]\ntraces = "off"', "otlp", False, False),
    ],
)
def test_a_variable_that_asks_for_traces_without_an_exporter_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, variable: str, exports: bool, told: bool
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", variable)
    file = tmp_path / "enginehouse.toml"
    file.write_text(table, encoding="utf-8")
    registry = load_plugins(PluginSettings(disabled=[] if exports else ["otlp"])).registry
    found = warnings(ConfiguredPlugins(lambda: load_config(file, {}).config, registry))
    assert any(each.startswith("OTEL_TRACES_EXPORTER=otlp has no effect: no plugin") for each in found) is told


@pytest.mark.parametrize(
    ("auth", "warned"),
    [
        ("", True),
        ('keys = [{ name = "a", key = "a-long-enough-secret" }]', False),
        ('jwt = { issuer = "https://id.example", audience = "gateway" }', False),
    ],
)
def test_a_gateway_that_is_open_to_everyone_is_a_warning(auth: str, warned: bool, advised: Advised) -> None:
    warnings = advised(f'[server]\nhost = "0.0.0.0"\n[auth]\n{auth}').warnings
    assert any("whoever reaches" in warning for warning in warnings) is warned


LAUNCHES = {
    "driver", "path", "source", "command",
}  # fmt: skip
ALWAYS = {
    "context_length", "vision", "tools", "json_mode", "embeddings", "parent", "endpoints", "name", "description",
    "unlisted", "metadata", "progress", "broken_stream", "timeouts", "filters", "scale_up_wait", "scale_down_idle",
}  # fmt: skip
LOADED = {
    "ttl": "'5m'", "idle": "'sleep'", "preload": "true", "pin": "true", "memory": "'1GB'", "concurrency": "2",
    "start_timeout": "'5m'", "start_silence": "'5m'", "stop_timeout": "'5m'",
}  # fmt: skip
LAUNCHED = {
    "options": "{ a = 1 }", "args": "['-v']", "env": "{ A = 'b' }", "host": "'rack'", "zone": "'eu'", "tier": "1",
    "replicas": "2", "priority": "1", "weight": "2.0", "role": "'prefill'", "evict": "'sleep'", "gpus": "1",
    "kv_events": "true", "keep_cache": "0", "keep_cache_wait": "'1s'", "placement": "{ a = 1 }",
    "place_timeout": "'1m'", "stop_command": "'stop'", "health_path": "'/up'",
}  # fmt: skip
NO_LAUNCH = "without driver, path, source and command, no engine is launched"


def test_each_key_of_a_model_either_has_an_effect_or_is_told() -> None:
    assert {*LAUNCHES, *ALWAYS, *LOADED, *LAUNCHED} == {*ModelSettings.__struct_fields__}


@pytest.mark.parametrize("key", [*LAUNCHED, *LOADED])
@pytest.mark.parametrize("driver", ["openai", "tabbyapi"])
def test_keys_of_a_model_that_nobody_launches_are_told(tmp_path: Path, driver: str, key: str) -> None:
    """A server that loads its models when the gateway says so gives some of them an effect."""
    text = f"[models.m]\n{key} = {(LAUNCHED | LOADED)[key]}\n[backends.b]\nurl = 'http://h'\ndriver = '{driver}'\n"
    file = tmp_path / "enginehouse.toml"
    file.write_text(f"{text}models = ['m']\n[hosts.rack]\n[zones.eu]\n", encoding="utf-8")
    found = warnings(ConfiguredPlugins(lambda: load_config(file, {}).config, load_plugins(PluginSettings()).registry))
    if driver == "tabbyapi" and key in LOADED:
        assert found == []
    else:
        more = ", and no backend loads models itself" if key in LOADED else ""
        assert found == [f"models.m.{key} has no effect: {NO_LAUNCH}{more}"]


def test_a_range_of_replicas_that_somebody_else_starts_has_an_effect(advised: Advised) -> None:
    text = "[models.m]\nreplicas = { min = 0, max = 4 }\npin = true\n"
    assert advised(text + "[backends.b]\nurl = 'http://h'\nmodels = ['m']").warnings == ()
    assert advised("[models.m]\ndriver = 'sim'\nttl = '5m'\nhost = 'local'").warnings == ()
    assert advised("[models.m]\nttl = '5m'\n[discovery.d]\ntype = 'static'").warnings == ()
