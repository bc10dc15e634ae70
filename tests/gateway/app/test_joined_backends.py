"""What services found joins a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from enginehouse.app.service_changes import JoinedBackends
from enginehouse.backends import FoundBackend
from enginehouse.config.load_config import load_config
from enginehouse.config.schema import BackendSettings, Config, PluginSettings
from enginehouse.domain.replica import Role
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse_discovery.static import read_list
from tests.support.routing import BUNDLED

CONFIG = msgspec.convert(
    {
        "backends": {"own": {"url": "http://own:1"}},
        "models": {"launched": {"driver": "sim"}},
        "hosts": {"rack": {"memory": 1000}},
    },
    Config,
)
A = FoundBackend(url="http://a:1")


def joined(**found: FoundBackend) -> JoinedBackends:
    return joined_with(BUNDLED, found)


def joined_with(plugins: Registry, found: Mapping[str, FoundBackend]) -> JoinedBackends:
    it = JoinedBackends(CONFIG, plugins)
    it.found = found
    it.in_force = it.joined_to(CONFIG)
    return it


def test_found_backends_join_and_leave_again() -> None:
    it = joined(a=A)
    assert [*it.in_force.config.backends] == ["own", "a"]
    assert it.in_force.without_found(it.in_force.config) == CONFIG
    it.found = {}
    assert it.joined_to(CONFIG).config == CONFIG


@pytest.mark.parametrize(
    ("name", "backend", "why"),
    [
        ("own", A, "already"),
        ("launched", A, "already"),
        ("x", FoundBackend(url="http://x:1", driver="olama"), "unknown driver 'olama'"),
        ("x", FoundBackend(url="ftp://x:1"), "not the address"),
        ("x", FoundBackend(url="http://x:1", models={"m": {"context": 5}}), "models.m.context: unknown key"),
        ("x", FoundBackend(url="http://x:1", concurrency=-1), "concurrency"),
        ("x", FoundBackend(url="http://x:1", models=cast(Any, 3)), "$.models"),
        ("x", FoundBackend(url="http://x:1", models=cast(Any, "m")), "$.models"),
        ("x", FoundBackend(url="http://x:1", node=cast(Any, 3)), "$.node"),
        ("x", FoundBackend(url=cast(Any, None)), "$.url"),
    ],
)
def test_what_the_configuration_cannot_have_is_left_out_with_its_reason(
    name: str, backend: FoundBackend, why: str
) -> None:
    it = joined_with(BUNDLED, {"good": A, name: backend}).in_force
    assert {*it.config.backends} == {"own", "good"}
    assert why in it.refused[name]


@pytest.mark.parametrize(
    ("plugin", "backend"),
    [
        ("pairs", FoundBackend(url="http://x:1", driver="sglang", role=Role.PREFILL)),
        ("pairs", FoundBackend(url="http://x:1", driver="vllm", role=Role.DECODE)),
        ("remote", FoundBackend(url="http://x:1", driver="llamacpp_router")),
    ],
)
def test_one_that_a_disabled_plugin_would_serve_is_left_out_as_if_it_were_configured(
    plugin: str, backend: FoundBackend
) -> None:
    disabled = load_plugins(PluginSettings(disabled=[plugin])).registry
    assert f"enable the plugin '{plugin}'" in joined_with(disabled, {"good": A, "x": backend}).in_force.refused["x"]
    assert not joined(x=backend).in_force.refused


def test_a_role_may_be_its_name_and_models_any_sequence() -> None:
    backend = FoundBackend(url="http://a:1", driver="sglang", role=cast(Any, "prefill"), models=("m", "n"))
    settings = joined(a=backend).in_force.config.backends["a"]
    assert (settings.role, settings.models) == (Role.PREFILL, ["m", "n"])


def test_all_that_a_backend_says_of_itself_is_in_force() -> None:
    models = {"m": {"context_length": 5}}
    backend = FoundBackend(
        url="https://a:1", driver="sim", role=Role.DECODE, models=models, priority=2, concurrency=3,
        host="rack-7", node="n", unit="u", api_key="env:PATH", verify_tls=False,
    )  # fmt: skip
    config = joined(a=backend).in_force.config
    settings = config.backends["a"]
    assert (settings.role, settings.priority, settings.concurrency, settings.verify_tls) == (Role.DECODE, 2, 3, False)
    assert isinstance(settings.models, dict)
    assert settings.models["m"].context_length == 5
    assert settings.api_key == "env:PATH", "a list cannot name a variable of this machine"
    assert (config.hosts["rack-7"].node, config.hosts["rack-7"].unit) == ("n", "u")


SECRET = ("api_key", "pass_authorization", "pass_caller")


@pytest.mark.parametrize("name", [each for each in BackendSettings.__struct_fields__ if each not in SECRET])
def test_each_key_of_a_backend_means_the_same_in_a_list(name: str, tmp_path: Path) -> None:
    values = {
        "url": "https://b:2", "driver": "vllm", "priority": 7, "weight": 0.5, "role": "decode", "zone": "eu", "tier": 2,
        "host": "rack", "models": ["m"], "concurrency": 3, "kv_events": {"endpoint": "tcp://b:5557"},
        "verify_tls": False, "timeouts": {"first_byte": "7s"},
    }  # fmt: skip
    table = {"url": "http://a:1", "driver": "sglang", "host": "local", name: values[name]}
    listed = read_list(msgspec.json.encode({"backends": {"a": table}}), "x")
    file = tmp_path / "enginehouse.toml"
    file.write_bytes(msgspec.toml.encode({"hosts": {"rack": {}}, "backends": {"a": table}}))
    configured = load_config(file, {}).config.backends["a"]
    assert getattr(configured, name) != getattr(BackendSettings(url="http://a:1"), name)
    assert joined(**listed).in_force.config.backends["a"] == configured


@pytest.mark.parametrize("name", ["pass_authorization", "pass_caller"])
def test_a_list_cannot_have_clients_keys_and_callers_passed_on(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        read_list(msgspec.json.encode({"backends": {"a": {"url": "http://a:1", name: True}}}), "x")


def test_a_configured_host_wins_over_what_is_found() -> None:
    found = joined(a=FoundBackend(url="http://a:1", host="rack", node="n"))
    assert found.in_force.config.hosts["rack"] == CONFIG.hosts["rack"]
