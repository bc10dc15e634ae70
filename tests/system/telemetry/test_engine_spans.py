"""Spans of a real engine: they hang below the gateway's call of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support.otlp_collector import SpanCollector
from tests.support.paths import ROOT
from tests.support.phoenix import Phoenix
from tests.support.real_engines import find_phoenix, find_vllm
from tests.support.traced_gateway import CLIENT, ask, settings

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

TOKENS = 16
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def collector() -> Iterator[SpanCollector]:
    program = find_phoenix()
    if program is None:
        pytest.skip("no Phoenix is installed: run `make engines ENGINES=phoenix`")
    with Phoenix(program) as phoenix:
        yield phoenix


@pytest.fixture(scope="module")
def gateway(collector: SpanCollector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with a vLLM of the model ``tiny``. Both send their spans to the collector."""
    python = find_vllm()
    if python is None:
        pytest.skip("no vLLM is installed: run `make engines ENGINES=vllm`")
    folder = tmp_path_factory.mktemp("tiny-hf")
    subprocess.run([python, "-m", "tests.support.tiny_hf", folder], check=True, cwd=ROOT)
    with RunningGateway(settings(collector.url) + vllm(folder, collector.url), path_with(python.parent)) as gateway:
        gateway.until(lambda status: status["replicas"][0]["state"] in ("ready", "failed"), timeout=600)
        assert gateway.status()["replicas"][0]["state"] == "ready", gateway.log
        yield gateway


def vllm(model: Path, collector: str) -> str:
    return f"""
[models.tiny]
driver = "vllm"
path = "{model}"
context_length = 2048
options = {{ dtype = "float32", enforce_eager = true, max_num_seqs = 4, block_size = 32 }}
args = ["--otlp-traces-endpoint", "{collector}/v1/traces"]
start_timeout = "8m"
preload = true

[models.tiny.env]
HF_HUB_OFFLINE = "1"
VLLM_NO_USAGE_STATS = "1"
VLLM_CPU_KVCACHE_SPACE = "1"
OMP_NUM_THREADS = "1"
OTEL_EXPORTER_OTLP_TRACES_PROTOCOL = "http/protobuf"
"""


def path_with(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_vllms_span_hangs_below_the_call_of_it(
    gateway: RunningGateway, collector: SpanCollector, stream: bool
) -> None:
    trace = f"{int(stream)}{TRACE[1:]}"
    ask(gateway, "tiny", trace=trace, stream=stream, tokens=TOKENS).raise_for_status()
    spans = collector.trace(trace, "chat tiny", "upstream", "llm_request")
    assert spans["chat tiny"].parent_id == CLIENT
    assert spans["upstream"].parent_id == spans["chat tiny"].span_id
    assert spans["llm_request"].parent_id == spans["upstream"].span_id
    assert spans["upstream"].began <= spans["llm_request"].began
    assert spans["llm_request"].ended <= spans["upstream"].ended
    assert spans["llm_request"].attributes["gen_ai.usage.completion_tokens"] == TOKENS
    if not stream:  # in a stream without usage, events are counted
        assert spans["chat tiny"].attributes["gen_ai.usage.output_tokens"] == TOKENS
