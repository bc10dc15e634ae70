"""A gateway with a launched llama-server is upgraded ten times while clients use it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from enginehouse.testing.gateway import RunningGateway
from tests.support.operated_gateway import MARK
from tests.support.real_gateways import llama_server, llama_table
from tests.support.upgraded_gateway import Traffic, UpgradedGateway

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]

UPGRADES = 10


def test_clients_of_a_llama_server_notice_no_upgrade(tmp_path: Path) -> None:
    engine, mark = llama_server(), str(tmp_path)
    table = llama_table("m", engine, "-c", "8192", "-np", "8", ttl='"0s"')
    path = f"{engine.program.parent}{os.pathsep}{os.environ['PATH']}"
    with RunningGateway(f'[server]\ndrain_timeout = "30s"\n{table}', {"PATH": path, MARK: mark}) as gateway:
        upgraded, traffic = UpgradedGateway(gateway), Traffic(gateway.url, "m")
        try:
            with traffic.flowing(streams=3, tokens=600):
                traffic.until_each_had(1)
                engines = _servers(mark)
                for _ in range(UPGRADES):
                    upgraded.upgrade()
                    traffic.until_each_had(1)
            assert not traffic.failed()
            assert len(engines) == 1
            assert _servers(mark) == engines
        finally:
            upgraded.stop()
    print({kind: len(outcomes) for kind, outcomes in traffic.outcomes.items()})


def _servers(mark: str) -> set[int]:
    """The llama-servers that the gateways of this test have started."""
    found = psutil.process_iter(["environ", "exe"])
    ours = (each for each in found if (each.info["environ"] or {}).get(MARK) == mark)
    return {each.pid for each in ours if (each.info["exe"] or "").endswith("llama-server")}
