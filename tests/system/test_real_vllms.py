"""Two real vLLMs and a llama-server with the same model: a vLLM is killed under streams, and they move between kinds.

What is compared: the text and the number of tokens with those of ids that lead clearly (``clear_answers``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import httpx
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support.clear_prompts import ClearAnswer, clear_answers
from tests.support.engine_groups import EngineGroup, backend, engine_groups, held_still, live, slow_motion
from tests.support.plain_httpx import post
from tests.support.read_streams import StreamReader, gaps, many_streams, start
from tests.support.real_gateways import VLLM_START_S, llama_server, llama_table, ready_gateway, vllm, vllm_table
from tests.support.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]

TOKENS = 120
STREAMS = 20
WORDS = "one two three"
TRIES = 6
"""A stream may be over before it can be moved."""


@pytest.fixture(scope="module")
def llama() -> Iterator[RunningGateway]:
    """A gateway of its own for a llama-server with the model ``tiny``."""
    engine = llama_server()
    args = ("-np", f"{STREAMS}", "-c", f"{STREAMS * 512}", "-ctk", "f32", "-ctv", "f32")
    with ready_gateway(engine, llama_table("tiny", engine, *args, preload="true"), "tiny") as gateway:
        yield gateway


@pytest.fixture(scope="module")
def gateway(llama: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with two vLLMs of the model ``tiny``, which it prefers, and the llama-server."""
    engine = vllm(tmp_path_factory.mktemp("tiny-hf"))
    config = f"""
{vllm_table("tiny", engine, options=f"max_num_seqs = {STREAMS}", replicas="2", preload="true")}

[routing]
strategy = "priority_only"

[plugins.llamacpp]
token_ids = true

[backends.llama]
driver = "llamacpp"
url = "{llama.url}/upstream/tiny"
models = ["tiny"]
priority = 9
"""
    with ready_gateway(engine, config, "tiny", timeout=2 * VLLM_START_S) as gateway:
        gateway.until_health(llama="healthy")
        for _ in range(4):  # the first answers compile
            post(f"{gateway.url}/v1/completions", json={"model": "tiny", "prompt": WORDS, "max_tokens": 8}, timeout=120)
        yield gateway


@pytest.fixture(scope="module")
def answers(llama: RunningGateway) -> list[ClearAnswer]:
    return clear_answers(llama.url, "tiny", TOKENS, STREAMS, lead=0.03)


async def test_a_stream_moves_from_vllm_to_llama_server(gateway: RunningGateway, answers: list[ClearAnswer]) -> None:
    vllms = engine_groups(gateway)
    gap = await moved(gateway, answers[0], vllms, "llama")
    print(f"vLLM to llama.cpp, gap {gap:.0f} ms")


async def test_a_stream_moves_from_llama_server_to_vllm(
    gateway: RunningGateway, llama: RunningGateway, answers: list[ClearAnswer]
) -> None:
    vllms = list(engine_groups(gateway))
    gap = await moved(gateway, answers[1], engine_groups(llama), vllms[0], drained=vllms)
    print(f"llama.cpp to vLLM, gap {gap:.0f} ms")


async def moved(
    gateway: RunningGateway,
    answer: ClearAnswer,
    sources: Mapping[str, EngineGroup],
    to: str,
    drained: Sequence[str] = (),
) -> float:
    """Move a stream from ``sources``, which are slow meanwhile, and return the gap in ms. Its client must not notice.

    It begins while the backends ``drained`` are drained.
    """
    for attempt in range(TRIES):
        gap = await moved_once(gateway, answer, sources, to, drained, attempt)
        if gap is not None:
            return gap
    raise AssertionError("the stream always ended before it could be moved")


async def moved_once(
    gateway: RunningGateway,
    answer: ClearAnswer,
    sources: Mapping[str, EngineGroup],
    to: str,
    drained: Sequence[str],
    attempt: int,
) -> float | None:
    """As ``moved``; ``None`` if the stream ended before."""
    reader = StreamReader("r", "tiny", answer.prompt, TOKENS)
    async with many_streams() as http:
        with slow_motion(*sources.values(), attempt=attempt):
            await each_is(http, gateway, drained, "drain")
            [reading] = start([reader], http, gateway.url)
            await until(lambda: reader.events)
            await each_is(http, gateway, drained, "undrain")
            with held_still(*sources.values()):
                move = await http.post(f"{gateway.url}/api/requests/r/move", json={"to": to})
            seen = await reading
    assert (seen.text, seen.finish, seen.counts["completion_tokens"]) == (answer.text, "length", TOKENS)
    return float(move.json()["gap_ms"]) if move.status_code == 200 else None


async def each_is(http: httpx.AsyncClient, gateway: RunningGateway, backends: Sequence[str], what: str) -> None:
    """Drain or undrain backends."""
    for name in backends:
        assert (await http.post(f"{gateway.url}/api/backends/{name}/{what}")).status_code == 200


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
            groups[killed].kill_leader()
        seen = await asyncio.gather(*reading)
    assert [(each.error, each.ended, each.finish) for each in seen] == [(None, True, "length")] * STREAMS
    assert [(each.text, each.counts["completion_tokens"]) for each in seen] == [
        (answer.text, TOKENS) for answer in answers
    ]
    assert len(hit) > 3
    print(f"kill -9 of a vLLM under {STREAMS} streams, {len(hit)} of them hit: {gaps(hit)}")
