"""The rules of a host, whose replicas come and go with the list of a server elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from enginehouse import ConfigError, ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.state_file import StateFile
from enginehouse.interfaces.driver_support import support_of
from tests.support.bare_host import BareHost
from tests.support.fake_engines import FakeClient, FakeLauncher, ScriptedDriver


def managed(name: str) -> ManagedReplica:
    return ManagedReplica(name, name, ModelSettings(command="engine", pin=True), support_of(ScriptedDriver()))


async def test_what_was_listed_against_the_rules_is_known_when_it_is_listed_no_longer(tmp_path: Path) -> None:
    replicas = {"a@a": managed("a")}
    host = BareHost(FakeLauncher(), StateFile(tmp_path), replicas, lambda *_: FakeClient({}))
    context = cast(Any, host._context)
    makes = context.make_swapper

    def refuses(facts: object) -> object:
        raise ConfigError("the rules do not fit 'b'")

    context.make_swapper = refuses
    replicas["b@b"] = managed("b")
    host._put_listed()
    assert [*host.facts.replicas] == ["a@a"]
    context.make_swapper = makes
    host.engines["b@b"].shown = ReplicaState.READY
    del replicas["b@b"]
    host._put_listed()
    assert [(each.replica, each.pin) for each in host.facts.replicas.values()] == [("a@a", True), ("b@b", False)]
    await host.close()
