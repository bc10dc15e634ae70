"""A gateway on a machine with GPUs, which a module in the place of ``nvidia-ml-py`` makes up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse_kit.gateway import RunningGateway
from tests.support.paths import ROOT
from tests.support.plain_httpx import get
from tests.support.upgraded_gateway import until_now

PYNVML = """
from tests.support.fake_gpus import FakeNvml
globals().update(FakeNvml().functions())
"""


def until_known(url: str, metric: str) -> Any:
    """The labels of the only line of a metric over time, once it has one."""

    def read() -> Any:
        return get(f"{url}/api/series?metric={metric}").json()["series"]

    until_now(read)
    return read()[0]["labels"]


CONFIG = """
[hosts.local]
gpus = [1]

[models.m]
driver = "sim"
gpus = 1
memory = "2GiB"
preload = true
"""


def test_operators_see_the_gpus_and_engines_their_own(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(PYNVML)
    with RunningGateway(
        CONFIG, {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])}
    ) as gateway:
        gateway.until(lambda status: status["replicas"][0]["state"] == "ready")
        [row] = gateway.status()["gpus"]
        assert (row["host"], row["gpu"], row["name"], row["replicas"]) == ("local", 1, "NVIDIA H100", ["m@m"])
        assert (row["total"], row["used"], row["free"]) == (80 << 30, 2 << 30, 78 << 30)

        table = CliRunner().invoke(enginehouse, ["status", "--url", gateway.url]).output
        assert "78.0 GiB" in table
        page = get(f"{gateway.url}/metrics").text
        assert 'enginehouse_gpu_memory_bytes{gpu="1",host="local",kind="free"} 8.3' in page
        assert 'enginehouse_gpu_utilization{gpu="1",host="local"} 0.41' in page
        assert row["utilization"] == 0.41
        lines = {metric: until_known(gateway.url, metric) for metric in ("gpu_utilization", "engine_memory")}
        assert lines["gpu_utilization"] == {"gpu": "local:1"}
        assert lines["engine_memory"] == {"backend": "m"}
        children = psutil.Process(gateway.pid).children()
        assert "1" in [each.environ().get("CUDA_VISIBLE_DEVICES") for each in children]
