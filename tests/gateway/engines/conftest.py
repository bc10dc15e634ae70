from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from enginehouse import ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.drivers import EngineClient
from enginehouse.engines.engine import Engine
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.launches import Ports
from enginehouse.engines.state_file import StateFile
from enginehouse.interfaces.driver_support import support_of
from enginehouse_kit.testing import HttpEngineClient
from enginehouse_llamacpp import LlamaCppDriver
from tests.support import real_gateways
from tests.support.bare_host import Heard, address_of
from tests.support.fake_engines import FakeLauncher, ScriptedDriver
from tests.support.host_launchers import launches
from tests.support.launchers import local_launcher
from tests.support.real_engines import RealEngine


class _Asked(HttpEngineClient):
    last = ""


@pytest.fixture
def driver() -> ScriptedDriver:
    return ScriptedDriver()


@pytest.fixture
def fake_launcher() -> FakeLauncher:
    return FakeLauncher()


@pytest.fixture
def real_engine() -> RealEngine:
    """A real llama-server and a tiny model."""
    return real_gateways.llama_server()


@pytest.fixture
async def llama_server(
    real_engine: RealEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EngineClient]:
    """A running llama-server that calls its model ``tiny`` and gives it a context of 2048 tokens."""
    monkeypatch.setenv("PATH", f"{real_engine.program.parent}{os.pathsep}{os.environ['PATH']}")
    model = ModelSettings(
        driver="llamacpp", path=str(real_engine.model), args=["-t", "1", "--no-warmup"], context_length=2048
    )
    states: list[ReplicaState] = []
    state_file = StateFile(tmp_path / "state")
    supervisor = Engine(
        ManagedReplica("tiny", "tiny", model, support_of(LlamaCppDriver())),
        launches(local_launcher(tmp_path), state_file, ports=Ports()),
        connect=_Asked,
        listener=Heard(states),
    )
    await supervisor.bring_up()
    address = address_of(supervisor)
    assert address is not None
    yield HttpEngineClient(address)
    await supervisor.stop()
    state_file.close()
    assert states == [ReplicaState.STARTING, ReplicaState.READY, ReplicaState.STOPPING, ReplicaState.STOPPED]


@pytest.fixture
def all_ports_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs on this machine: engines of other tests may have any of them."""
    monkeypatch.setattr("enginehouse.engines.launches._is_free", lambda _: True)
