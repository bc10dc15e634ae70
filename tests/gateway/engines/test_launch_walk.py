"""How far a launch walks through the code: what does not change between two launches is not done again."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import enginehouse
from enginehouse import ReplicaState
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.plugin_id import PluginId
from enginehouse.engines.engine_pool import EnginePool
from enginehouse.engines.guarded_driver import guarded_driver
from enginehouse.engines.launch_line import LaunchRules
from enginehouse.engines.managed_replica import ManagedReplica
from enginehouse.engines.ports import Ports
from enginehouse.engines.state_file import StateFile
from enginehouse_sim import SimDriver
from tests.support.fake_engines import FakeClient, FakeLauncher
from tests.support.virtual_time import Run

CORE = Path(str(enginehouse.__file__)).parent
REPLICA = "a@a"
PAGES = {"/health": {}, "/server_info": {"vllm_config": {"scheduler_config": {"max_num_seqs": 8}}}}


class Walk:
    """Counts the calls of the core's functions, by file, while it is the profiler; not those of the virtual clock."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(CORE) and not file.is_relative_to(CORE / "app" / "virtual"):
            self.calls[str(file.relative_to(CORE))] += 1


def test_a_launch_reads_no_configuration_and_stays_short(in_virtual_time: Run, tmp_path: Path) -> None:
    driver = guarded_driver(PluginId("driver", "sim"), SimDriver())
    model = ModelSettings(driver="sim", options={"max_num_seqs": 8})
    rules = LaunchRules(secrets=frozenset({"TOKEN"}))
    state_file, launcher = StateFile(tmp_path), FakeLauncher()
    walk = Walk()

    async def scene() -> None:
        pool = EnginePool(
            "local",
            {REPLICA: ManagedReplica("a", "a", model, driver, rules)},
            launcher=launcher,
            ports=Ports(25_000, 25_999),
            connect=lambda backend, address: FakeClient(PAGES),
            state_file=state_file,
            on_state=lambda replica, state: None,
            on_examined=lambda replica: None,
            on_exited=lambda replica: None,
        )
        await pool.start(REPLICA)
        await pool.stop(REPLICA, None)
        sys.setprofile(walk)
        try:
            await pool.start(REPLICA)
        finally:
            sys.setprofile(None)
        assert pool.states()[REPLICA] is ReplicaState.READY
        await pool.stop(REPLICA, None)

    in_virtual_time(scene())
    state_file.close()
    assert len(launcher.lines) == 2
    assert not {"config/secret_variables.py", "config/parameters.py", "config/managed.py"} & walk.calls.keys()
    assert len(walk.calls) <= 22, walk.calls
    assert walk.calls.total() <= 170, walk.calls
