"""Whatever two configurations are: what a change of one into the other comes to."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enginehouse.app import Gateway, build_fleet
from enginehouse.app.config_diff import ConfigDiff, diff_configs
from enginehouse.config.environment import STATE_DIR
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.tickets import SwapPlan
from enginehouse_kit.swap_plans import explain_swap
from tests.support.changed_config import reconfigure
from tests.support.hypothesis_profiles import TIMING_CHECKS

HOSTS = ("local", "h1", "h2")
COMMANDS = ("engine ${port}", "other ${port}")


def tables(names: str, entry: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of ``names``, in any order, each with an entry."""
    return st.lists(st.sampled_from(names), unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries(dict.fromkeys(chosen, entry))
    )


HOST = st.fixed_dictionaries(
    {}, optional={"memory": st.sampled_from([1 << 30, 1 << 40]), "max_loads": st.integers(1, 3)}
)
MODEL = st.fixed_dictionaries(
    {"driver": st.just("sim"), "command": st.sampled_from(COMMANDS), "host": st.sampled_from(HOSTS)},
    optional={
        "replicas": st.integers(1, 3),
        "ttl": st.just(60.0),
        "pin": st.booleans(),
        "priority": st.integers(0, 3),
        "vision": st.booleans(),
        "timeouts": st.just({"stall": 1.0}),
    },
)
BACKEND = st.fixed_dictionaries(
    {"url": st.sampled_from(["http://127.0.0.1:9", "http://127.0.0.1:10"]), "models": st.just(["a", "m"])},
    optional={"priority": st.integers(0, 3), "host": st.sampled_from(HOSTS), "api_key": st.sampled_from(["x", "y"])},
)
CONFIGS = st.fixed_dictionaries(
    {"models": tables("abc", MODEL), "backends": tables("xyz", BACKEND), "hosts": st.just({})},
    optional={
        "server": st.fixed_dictionaries(
            {"port": st.integers(0, 3), "max_body": st.integers(1, 9), "max_body_memory": st.integers(9, 10)}
        ),
        "routing": st.fixed_dictionaries(
            {"aliases": st.sampled_from([{}, {"q": "a"}]), "max_retries": st.integers(0, 3)}
        ),
        "scheduling": st.fixed_dictionaries(
            {"swapper": st.sampled_from(["group", "memory"]), "max_queue": st.integers(1, 9)}
        ),
        "timeouts": st.just({"stall": 2.0}),
        "checks": st.just({"failures": 7}),
    },
).flatmap(lambda data: st.fixed_dictionaries({"h1": HOST, "h2": HOST}).map(lambda hosts: config(data, hosts)))


def config(data: Mapping[str, Any], hosts: Mapping[str, Any]) -> Config:
    return msgspec.convert({**data, "hosts": hosts}, Config)


@given(CONFIGS)
def test_a_configuration_changes_nothing_of_itself(one: Config) -> None:
    assert diff_configs(one, copy.deepcopy(one), (), ()) == (ConfigDiff(), one)


@given(CONFIGS, CONFIGS)
def test_what_a_diff_leaves_needs_a_restart(old: Config, new: Config) -> None:
    diff, in_force = diff_configs(old, new, (), ())
    rest, still = diff_configs(in_force, new, (), ())
    assert rest == ConfigDiff(needs_restart=diff.needs_restart)
    assert still == in_force
    assert bool(diff.needs_restart) == (old.server.port != new.server.port)


@given(CONFIGS, CONFIGS)
def test_a_fleet_that_becomes_another_is_like_one_that_was_built_so(old: Config, new: Config) -> None:
    fleet = build_fleet(old)
    before = dict(fleet.snapshot.models)
    fresh = build_fleet(new)
    fleet.become(fresh)
    assert fleet.snapshot == build_fleet(new).snapshot
    assert fleet.backends() == build_fleet(new).backends()
    if repr(old) == repr(new):  # with their tables in the same order
        assert all(fleet.snapshot.candidates(model) == row for model, row in before.items())


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins(PluginSettings(enabled=[])).registry


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_DIR, str(tmp_path))


@pytest.mark.long
@settings(max_examples=25, suppress_health_check=[*TIMING_CHECKS, HealthCheck.function_scoped_fixture])
@given(st.lists(CONFIGS, min_size=2, max_size=4))
def test_a_gateway_that_was_changed_is_like_one_that_was_started_so(
    registry: Registry, state: None, configs: list[Config]
) -> None:
    port = configs[0].server.port
    expected = msgspec.structs.replace(configs[-1], server=msgspec.structs.replace(configs[-1].server, port=port))

    async def facts_of(gateway: Gateway, changes: list[Config], awaited: Any = None) -> Any:
        await gateway.start()
        await gateway.settled()
        try:
            for each in changes:
                reconfigure(gateway, each)
            assert gateway.config == expected
            for _ in range(1000):  # what has left is forgotten a moment later
                if awaited is None or facts(gateway) == awaited:
                    break
                await asyncio.sleep(0.001)
            return facts(gateway)
        finally:
            await gateway.stop()

    started = asyncio.run(facts_of(Gateway(expected, registry), []))
    assert asyncio.run(facts_of(Gateway(configs[0], registry), configs[1:], started)) == started


def swap_plans(gateway: Gateway) -> Iterator[SwapPlan]:
    """The swap that loads each model beside all of them."""
    for model in gateway.engines.models:
        _, host = gateway.engines.host_of(model)
        yield explain_swap(host.swapper, host.facts, model, gateway.engines.models)


def facts(gateway: Gateway) -> Any:
    """All that can be seen of a gateway that serves nothing, but for what probes find out."""
    found = ("health", "last_error", "last_error_at")
    backends = [msgspec.structs.asdict(each) for each in gateway.fleet.backends()]
    return {
        "backends": [{key: value for key, value in each.items() if key not in found} for each in backends],
        "candidates": {
            model: [(each.replica, each.state, each.capabilities) for each in row]
            for model, row in gateway.fleet.snapshot.models.items()
        },
        "hosts": {backend: queue.name for backend, queue in gateway.engines.queues.items()},
        "swaps": list(swap_plans(gateway)),
        "upstreams": {
            name: (each.timeouts, each.pool.origin, each.fixed("POST", "/"))
            for name, each in gateway.relay.context.upstreams.items()
        },
        "retries": gateway.relay.context.config.routing.max_retries,
        "max_body": gateway.admission.max_body,
        "max_body_memory": gateway.admission.body_memory.most,
    }
