"""Two real vLLMs and a llama-server with the same model: a vLLM is killed under streams, and they move between kinds.

What is compared: the text and the number of tokens with those of ids that lead clearly (``clear_answers``).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pytest

from enginehouse.testing.gateway import RunningGateway
from tests.support.clear_prompts import ClearAnswer, clear_answers
from tests.support.engine_groups import backend, engine_groups, held_still, live
from tests.support.paths import ROOT
from tests.support.plain_httpx import post
from tests.support.read_streams import StreamReader, gaps, many_streams, start
from tests.support.real_engines import find_llama_server, find_vllm
from tests.support.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

TOKENS = 120
STREAMS = 20
WORDS = "one two three"


@pytest.fixture(scope="module")
def llama() -> Iterator[RunningGateway]:
    """A gateway of its own for a llama-server with the model ``tiny``."""
    engine = find_llama_server()
    if engine is None:
        pytest.skip("no llama-server is installed: run `make engines`")
    config = f"""
[models.tiny]
driver = "llamacpp"
path = "{engine.model}"
args = ["-t", "1", "--no-warmup", "-np", "{STREAMS}", "-c", "{STREAMS * 512}", "-ctk", "f32", "-ctv", "f32"]
preload = true
"""
    with RunningGateway(config, {"PATH": f"{engine.program.parent}{os.pathsep}{os.environ['PATH']}"}) as gateway:
        gateway.until(lambda status: status["replicas"][0]["state"] == "ready")
        yield gateway


@pytest.fixture(scope="module")
def gateway(llama: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with two vLLMs of the model ``tiny``, which it prefers, and the llama-server."""
    python = find_vllm()
    if python is None:
        pytest.skip("no vLLM is installed: run `make engines ENGINES=vllm`")
    folder = tmp_path_factory.mktemp("tiny-hf")
    subprocess.run([python, "-m", "tests.support.tiny_hf", folder], check=True, cwd=ROOT)
    config = f"""
[routing]
strategy = "priority_only"

[backends.llama]
driver = "llamacpp"
url = "{llama.url}/upstream/tiny"
models = ["tiny"]
priority = 9

[models.tiny]
driver = "vllm"
path = "{folder}"
replicas = 2
context_length = 2048
options = {{ dtype = "float32", enforce_eager = true, max_num_seqs = {STREAMS}, block_size = 32 }}
start_timeout = "8m"
preload = true

[models.tiny.env]
HF_HUB_OFFLINE = "1"
VLLM_NO_USAGE_STATS = "1"
VLLM_CPU_KVCACHE_SPACE = "1"
OMP_NUM_THREADS = "1"
"""
    with RunningGateway(config, {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}) as gateway:
        gateway.until(lambda s: all(each["state"] in ("ready", "failed") for each in s["replicas"]), timeout=800)
        assert {each["state"] for each in gateway.status()["replicas"]} == {"ready"}, gateway.log
        gateway.until_health(llama="healthy")
        for _ in range(4):  # the first answers compile
            post(f"{gateway.url}/v1/completions", json={"model": "tiny", "prompt": WORDS, "max_tokens": 8}, timeout=120)
        yield gateway


@pytest.fixture(scope="module")
def answers(llama: RunningGateway) -> list[ClearAnswer]:
    return clear_answers(llama.url, "tiny", TOKENS, STREAMS, lead=0.03)


async def test_a_stream_moves_from_one_kind_to_the_other(gateway: RunningGateway, answers: list[ClearAnswer]) -> None:
    answer, groups = answers[0], engine_groups(gateway)
    reader = StreamReader("r", "tiny", answer.prompt, TOKENS)
    moves = []
    async with many_streams() as http:
        [reading] = start([reader], http, gateway.url)
        await until(lambda: reader.events)
        with held_still(*groups.values()):
            source = backend((await live(http, gateway))["r"])
            moves.append((await http.post(f"{gateway.url}/api/requests/r/move", json={"to": "llama"})).json())
        seen = await reading
    assert source in groups
    assert all("gap_ms" in move for move in moves), moves
    assert (seen.text, seen.finish, seen.counts["completion_tokens"]) == (answer.text, "length", TOKENS)
    print(f"vLLM to llama.cpp, gap {[round(move['gap_ms']) for move in moves]} ms")


async def test_no_client_notices_that_one_of_two_vllms_is_killed(
    gateway: RunningGateway, answers: list[ClearAnswer]
) -> None:
    readers = [StreamReader(f"r{n}", "tiny", answer.prompt, TOKENS) for n, answer in enumerate(answers)]
    groups = engine_groups(gateway)
    async with many_streams() as http:
        reading = start(readers, http, gateway.url)
        await until(lambda: sum(each.events > 0 for each in readers) > STREAMS // 2)
        with held_still(*groups.values()):
            rows = await live(http, gateway)
            killed = max(groups, key=lambda name: sum(backend(row) == name for row in rows.values()))
            hit = [each for each in readers if each.id in rows and backend(rows[each.id]) == killed]
            groups.pop(killed).kill_leader()
            for each in groups.values():
                each.go_on()
        seen = await asyncio.gather(*reading)
    assert [(each.error, each.ended, each.finish) for each in seen] == [(None, True, "length")] * STREAMS
    assert [(each.text, each.counts["completion_tokens"]) for each in seen] == [
        (answer.text, TOKENS) for answer in answers
    ]
    assert len(hit) > 3
    print(f"kill -9 of a vLLM under {STREAMS} streams, {len(hit)} of them hit: {gaps(hit)}")
