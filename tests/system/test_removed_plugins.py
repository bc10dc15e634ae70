"""Each bundled plugin can be taken away: the gateway starts and serves, and ``check`` names what is missing."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import msgspec
import pytest

from enginehouse import ConfigError
from enginehouse.app import Gateway
from enginehouse.app.needs import unmet_needs
from enginehouse.callers import Accounting, Caller, LimitAmounts
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.errors import Forbidden
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from enginehouse_offline.checked_config import check_config
from tests.support import plain_httpx

NEEDED = {"routing", "scheduling"}
"""Without these, nothing chooses a replica, and nothing queues."""
REMOVABLE = sorted({each.entry_point for each in load_plugins(PluginSettings(enabled=[])).plugins} - NEEDED)
MISSING = {
    "discovery": ('[discovery.lab]\ntype = "static"\nfile = "f"\n', "discovery.lab", "enable the plugin 'discovery'"),
    "rescheduling": ("[rescheduling]\nenabled = true\n", "rescheduling.enabled", "enable the plugin 'rescheduling'"),
    "scaling": (
        '[models.m]\ndriver = "sim"\nreplicas = { max = 2 }\n',
        "models.m.replicas",
        "enable the plugin 'scaling'",
    ),
    "remote": (
        '[backends.x]\nurl = "http://x"\ndriver = "llamacpp_router"\n',
        "backends.x.driver",
        "enable the plugin 'remote'",
    ),
    "kept_caches": (
        '[models.m]\ndriver = "sim"\nkeep_cache = "4GiB"\n',
        "models.m.keep_cache",
        "enable the plugin 'kept_caches'",
    ),
    "mirrors": ('[routing.mirrors.m]\nto = "n"\n', "routing.mirrors", "enable the plugin 'mirrors'"),
    "access_log": ("[telemetry]\naccess_log = true\n", "telemetry.access_log", "enable the plugin 'access_log'"),
    "metrics": ('[telemetry]\npush_metrics = "1s"\n', "telemetry.push_metrics", "enable the plugin 'metrics'"),
    "progress": ('[scheduling]\nprogress = "comments"\n', "scheduling.progress", "enable the plugin 'progress'"),
    "continuation": ("[routing]\ngather = true\n", "routing.gather", "enable the plugin 'continuation'"),
    "pairs": (
        '[backends.x]\nurl = "http://x"\ndriver = "sglang"\nrole = "decode"\n',
        "backends.x.role",
        "enable the plugin 'pairs'",
    ),
    "interception": ('interceptors = ["loops"]\n', "interceptors", "enable the plugin 'interception'"),
    "guards": ('guards = ["mask"]\n', "guards", "enable the plugin 'guards'"),
    "local": ('[models.m]\ndriver = "sim"\n', "hosts.local.launcher", "disabled plugins: local"),
    "callers": ('[[auth.keys]]\nname = "a"\nkey = "secret-of-a"\n', "limits.store", "disabled plugins: callers"),
    "routing": ("", "routing.strategy", "disabled plugins: routing"),
    "scheduling": ("", "scheduling.scheduler", "disabled plugins: scheduling"),
    **{
        driver: (f'[backends.x]\nurl = "http://x"\ndriver = "{driver}"\n', "backends.x.driver", f"plugins: {driver}")
        for driver in ("llamacpp", "vllm", "sglang", "openai", "sim")
    },
}


def until_ready(url: str) -> None:
    end = time.monotonic() + 30
    while plain_httpx.get(f"{url}/ready").status_code != 200:
        assert time.monotonic() < end


@pytest.mark.parametrize("plugin", REMOVABLE)
def test_a_gateway_without_it_starts_and_serves(plugin: str) -> None:
    driver = "openai" if plugin == "sim" else "sim"
    with SimEngine("m") as engine:
        config = (
            f'[backends.a]\ndriver = "{driver}"\nurl = "{engine.url}"\nmodels = ["m"]\n'
            f'[plugins]\ndisabled = ["{plugin}"]\n'
        )
        with RunningGateway(config) as gateway:
            until_ready(gateway.url)
            body = {"model": "m", "prompt": "x", "max_tokens": 2}
            answer = plain_httpx.post(f"{gateway.url}/v1/completions", json=body)
            assert (answer.status_code, len(answer.json()["choices"])) == (200, 1)


@pytest.mark.parametrize("plugin", MISSING)
def test_check_names_what_a_configuration_needs_of_it(plugin: str, tmp_path: Path) -> None:
    text, key, remedy = MISSING[plugin]
    file = tmp_path / "enginehouse.toml"
    file.write_text(f'{text}[plugins]\ndisabled = ["{plugin}"]\n')
    with pytest.raises(ConfigError) as refused:
        check_config(file)
    first = getattr(refused.value, "errors", [refused.value])[0]
    assert first.key == key
    assert remedy in first.remedy


def test_only_its_own_plugin_takes_the_list_of_models_away() -> None:
    for disabled, status in (("protocols", 200), ("model_list", 404)):
        with RunningGateway(f'[plugins]\ndisabled = ["{disabled}"]\n') as gateway:
            assert plain_httpx.get(f"{gateway.url}/v1/models").status_code == status


def test_a_web_socket_that_nobody_serves_is_refused() -> None:
    with RunningGateway('[plugins]\ndisabled = ["web_sockets"]\n') as gateway:
        asks = {"connection": "upgrade", "upgrade": "websocket"}
        for path in ("/v1/realtime?model=m", "/upstream/m/x", "/nowhere"):
            answer = plain_httpx.get(f"{gateway.url}{path}", headers=asks)
            assert (answer.status_code, answer.headers["connection"]) == (404, "close")
            assert "enable the plugin 'web_sockets'" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[[auth.keys]]\nname = "a"\nkey = "secret-of-a"\n[limits]\nstore = "own"\n', "auth.keys"),
        ('[server.per_address]\nmax_concurrent = 1\n[limits]\nstore = "own"\n', "server.per_address"),
        ('[limits]\nstore = "own"\n', "limits.store"),
        ('[usage]\nstore = "own"\n', "usage.store"),
    ],
)
def test_what_nobody_counts_is_refused(text: str, key: str) -> None:
    registry = load_plugins(PluginSettings(disabled=["callers"])).registry
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    for kind in ("limit_store", "usage_store"):
        registry.add([Registered(kind=kind, type="own", factory=object, **origin)])
    refused = unmet_needs(msgspec.toml.decode(text, type=Config), registry)
    assert key in [each.key for each in refused]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('[backends.x]\nurl = "http://x"\ndriver = "vllm"\nrole = "prefill"\n', ["backends.x.role"]),
        ('[models.m]\ndriver = "sim"\nrole = "decode"\n', ["models.m.role"]),
        ("[rescheduling]\nenabled = true\nadaptive_pd = true\n", ["rescheduling.adaptive_pd"]),
        ('[backends.x]\nurl = "http://x"\ndriver = "vllm"\n', []),
        ('[backends.x]\nurl = "http://x"\ndriver = "openai"\nrole = "prefill"\n', []),
    ],
)
def test_what_nobody_hands_over_is_refused(text: str, keys: list[str]) -> None:
    registry = load_plugins(PluginSettings(disabled=["pairs"])).registry
    refused = unmet_needs(msgspec.toml.decode(text, type=Config), registry)
    assert [each.key for each in refused] == keys


async def test_no_key_is_made_that_nobody_would_check() -> None:
    registry = load_plugins(PluginSettings(disabled=["callers"])).registry
    transport = httpx.ASGITransport(Gateway(Config(), registry).application)
    async with plain_httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        made = await client.post("/api/keys", json={"name": "boss", "admin": True, "requests_per_minute": 1})
        assert (made.status_code, made.json()["error"]["code"]) == (404, "not_found")
        assert (await client.get("/api/status")).status_code == 200


@pytest.mark.parametrize("name", ["keys.json", "keys.required"])
def test_keys_made_at_run_time_keep_the_gateway_closed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    gateway = Gateway(Config(), load_plugins(PluginSettings(disabled=["callers"])).registry)
    with pytest.raises(ConfigError, match="no enabled plugin knows them"):
        gateway.callers.open(tmp_path)


def test_limits_that_nobody_counts_let_nobody_in() -> None:
    with pytest.raises(Forbidden, match="enable the plugin 'callers'"):
        Accounting().counted("names/ann", Caller("ann", limits=LimitAmounts(requests_per_minute=1)))
    assert Accounting().counted("names/ann", Caller("ann", models=("m",))).name == "names/ann"
