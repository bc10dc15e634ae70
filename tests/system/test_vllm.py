"""A real vLLM behind the gateway, launched by it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from enginehouse.testing import check_driver
from enginehouse.testing.gateway import RunningGateway
from enginehouse_vllm import VllmDriver
from tests.support.engine_runs import drains, shows_metrics, stops_for_a_client_that_leaves
from tests.support.paths import ROOT
from tests.support.plain_httpx import get, post
from tests.support.real_engines import find_vllm

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with the model ``tiny``, which is ready: vLLM takes up to two minutes to start."""
    python = find_vllm()
    if python is None:
        pytest.skip("no vLLM is installed: run `make engines ENGINES=vllm`")
    folder = tmp_path_factory.mktemp("tiny-hf")
    subprocess.run([python, "-m", "tests.support.tiny_hf", folder], check=True, cwd=ROOT)
    config = f"""
[models.tiny]
driver = "vllm"
path = "{folder}"
context_length = 2048
options = {{ dtype = "float32", enforce_eager = true, max_num_seqs = 4, block_size = 32 }}
start_timeout = "5m"
preload = true

[models.tiny.env]
HF_HUB_OFFLINE = "1"
VLLM_NO_USAGE_STATS = "1"
VLLM_CPU_KVCACHE_SPACE = "1"
OMP_NUM_THREADS = "1"
"""
    with RunningGateway(config, {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}) as gateway:
        gateway.until(lambda status: status["replicas"][0]["state"] in ("ready", "failed"), timeout=300)
        assert gateway.status()["replicas"][0]["state"] == "ready", gateway.log
        yield gateway


def test_its_driver_passes_the_check_on_it(gateway: RunningGateway) -> None:
    check_driver(VllmDriver, f"{gateway.url}/upstream/tiny", "tiny")


def test_the_model_is_listed_with_its_context(gateway: RunningGateway) -> None:
    card = get(f"{gateway.url}/v1/models/tiny").json()
    assert (card["max_model_len"], card["status"]) == (2048, {"value": "loaded"})


def test_tokens_are_counted_at_the_gateways_own_door(gateway: RunningGateway) -> None:
    answer = post(f"{gateway.url}/tokenize", json={"model": "tiny", "prompt": "hello world"})
    assert answer.status_code == 200
    assert answer.json()["count"] == len(answer.json()["tokens"]) > 0


def test_its_figures_are_on_the_gateways_page(gateway: RunningGateway) -> None:
    shows_metrics(gateway, "tiny", "vllm:")


async def test_it_stops_for_a_client_that_leaves(gateway: RunningGateway) -> None:
    await stops_for_a_client_that_leaves(gateway, "tiny", 1500)


async def test_it_drains(gateway: RunningGateway) -> None:
    await drains(gateway, "tiny", "tiny", 300)
