"""A gateway with a launched llama-server is upgraded ten times while clients use it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.operated_gateway import MARK
from tests.support.real_gateways import llama_server, llama_table
from tests.support.upgraded_gateway import Traffic, UpgradedGateway

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600)]

UPGRADES = 10


@pytest.mark.parametrize(("workers", "plain", "streams"), [(1, 2, 2), (4, 40, 10)])
def test_clients_of_a_llama_server_notice_no_upgrade(tmp_path: Path, workers: int, plain: int, streams: int) -> None:
    """Streams last shorter and longer than the drain; then one more upgrade, to a broken configuration, is refused."""
    engine, mark = llama_server(), str(tmp_path)
    table = llama_table("m", engine, "-c", "8192", "-np", "8", ttl='"0s"')
    path = f"{engine.program.parent}{os.pathsep}{os.environ['PATH']}"
    settings = f'[server]\nworkers = {workers}\ndrain_timeout = "5s"\n{table}'
    with RunningGateway(settings, {"PATH": path, MARK: mark}) as gateway:
        upgraded, traffic = UpgradedGateway(gateway), Traffic(gateway.url, "m")
        try:
            with traffic.flowing(streams, 600, plain=plain, short=streams):
                traffic.until_each_had(1)
                engines = _servers(mark)
                for _ in range(UPGRADES):
                    upgraded.upgrade()
                    traffic.until_each_had(1)
                gateway.write_config(f"{settings}no_such_key = 1\n")
                refused = plain_httpx.post(f"{gateway.url}/api/reload?take_over=true")
                traffic.until_each_had(1)
            assert not traffic.failed()
            assert (refused.status_code, "no_such_key" in refused.text) == (400, True)
            assert len(engines) == 1
            assert _servers(mark) == engines
        finally:
            upgraded.stop()
    print(workers, {kind: len(outcomes) for kind, outcomes in traffic.outcomes.items()})


def _servers(mark: str) -> set[int]:
    """The llama-servers that the gateways of this test have started."""
    found = psutil.process_iter(["environ", "exe"])
    ours = (each for each in found if (each.info["environ"] or {}).get(MARK) == mark)
    return {each.pid for each in ours if (each.info["exe"] or "").endswith("llama-server")}
