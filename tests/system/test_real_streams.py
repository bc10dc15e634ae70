"""Streams of real llama-servers: one is killed under them, and they move.

What is compared: the text and the number of tokens with those of ids that lead clearly (``clear_answers``). Text of
other ids would differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support.clear_prompts import ClearAnswer, clear_answers
from tests.support.engine_groups import EngineGroup, backend, engine_groups, held_still, live, slow_motion
from tests.support.plain_httpx import post
from tests.support.read_streams import StreamReader, gaps, many_streams, start
from tests.support.real_gateways import llama_server, llama_table, ready_gateway
from tests.support.waiting import until

pytestmark = pytest.mark.engine

TOKENS = 80
STREAMS = 20
FEW = 3
TRIES = 20
"""On a busy machine, a stream may be over before the test can stop its engine or move it."""


@contextmanager
def two_engines() -> Iterator[RunningGateway]:
    """A gateway with two llama-servers of the model ``tiny``."""
    engine = llama_server()
    slots = ("-np", f"{STREAMS}", "-c", f"{STREAMS * 512}")
    with ready_gateway(engine, llama_table("tiny", engine, *slots, replicas="2", preload="true"), "tiny") as gateway:
        yield gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with two_engines() as gateway:
        yield gateway


@pytest.fixture
def short_lived() -> Iterator[RunningGateway]:
    """A gateway of its own, for a test that leaves one engine only."""
    with two_engines() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def answers(gateway: RunningGateway) -> list[ClearAnswer]:
    return clear_answers(gateway.url, "tiny", TOKENS, STREAMS)


@pytest.mark.timeout(180)
async def test_a_stream_moves_there_and_back_and_stays_the_same(
    gateway: RunningGateway, answers: list[ClearAnswer]
) -> None:
    gaps_ms: list[float] = []
    for attempt in range(TRIES):
        gaps_ms = await moved_twice(gateway, answers[0], attempt)
        if len(gaps_ms) == 2:
            break
    assert len(gaps_ms) == 2, "the stream always ended before it could be moved"
    print(f"moved twice, gaps {[round(gap) for gap in gaps_ms]} ms")


async def moved_twice(gateway: RunningGateway, answer: ClearAnswer, attempt: int) -> list[float]:
    """Move a stream there and back, unless it ends before; the gaps. Its client must not notice."""
    groups, reader = engine_groups(gateway), StreamReader("r", "tiny", answer.prompt, TOKENS)
    async with many_streams() as http:
        with slow_motion(*groups.values(), attempt=attempt):
            [reading] = start([reader], http, gateway.url)
            await until(lambda: reader.events)
            gaps_ms = [await moved(http, gateway, groups) for _ in range(2)]
            seen = await reading
    assert (seen.text, seen.finish, seen.counts["completion_tokens"]) == (answer.text, "length", TOKENS)
    return [gap for gap in gaps_ms if gap is not None]


async def moved(http: httpx.AsyncClient, gateway: RunningGateway, groups: Mapping[str, EngineGroup]) -> float | None:
    """Move the stream to the other backend, and return the gap in ms; ``None`` if all that was left of it has come.

    Its engine stands still meanwhile, or it could answer the rest before the other one has read the prompt.
    """
    row = (await live(http, gateway)).get("r")
    if row is None:
        return None
    source = backend(row)
    other = next(name for name in groups if name != source)
    with held_still(groups[source]):
        answer = await http.post(f"{gateway.url}/api/requests/r/move", json={"to": other})
    return float(answer.json()["gap_ms"]) if answer.status_code == 200 else None


def test_to_go_on_from_text_is_not_exact(gateway: RunningGateway, answers: list[ClearAnswer]) -> None:
    """Why streams are continued by ids: of the same text, the engine makes other tokens."""
    cut = TOKENS // 2
    by_text, by_ids = 0, 0
    for answer in answers:
        given = ids_of(gateway, answer.prompt)
        rest = answer.ids[cut:]
        by_ids += continued(gateway, [*given, *answer.ids[:cut]], len(rest)) == rest
        by_text += continued(gateway, answer.prompt + text_of(gateway, answer, cut), len(rest)) == rest
    print(f"of {len(answers)} answers cut in the middle, {by_ids} go on the same from ids, {by_text} from text")
    assert by_ids == len(answers)
    assert by_text < len(answers) // 2


def ids_of(gateway: RunningGateway, text: str) -> list[int]:
    ids: list[int] = post(f"{gateway.url}/tokenize", json={"model": "tiny", "content": text}).json()["tokens"]
    return ids


def text_of(gateway: RunningGateway, answer: ClearAnswer, cut: int) -> str:
    body = {"model": "tiny", "tokens": answer.ids[:cut]}
    return str(post(f"{gateway.url}/detokenize", json=body).json()["content"])


def continued(gateway: RunningGateway, prompt: str | list[int], tokens: int) -> list[int]:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1}
    [choice] = post(f"{gateway.url}/v1/completions", json=body, timeout=60).json()["choices"]
    return [step["id"] for step in choice["logprobs"]["content"]]


async def test_no_client_notices_that_one_of_two_is_killed(
    short_lived: RunningGateway, answers: list[ClearAnswer]
) -> None:
    hit: list[StreamReader] = []
    for _ in range(TRIES):
        hit = await hit_by_a_kill(short_lived, answers)
        if hit:
            break
    assert hit, "the streams always ended before their engine could be killed"
    print(f"kill -9 under {STREAMS} streams, {len(hit)} of them hit: {gaps(hit)}")


async def hit_by_a_kill(gateway: RunningGateway, answers: list[ClearAnswer]) -> list[StreamReader]:
    """Kill the engine that most streams have, unless that are few; those streams. No client must notice."""
    readers = [StreamReader(f"r{n}", "tiny", answer.prompt, TOKENS) for n, answer in enumerate(answers)]
    groups = engine_groups(gateway)
    async with many_streams() as http:
        reading = start(readers, http, gateway.url)
        await until(lambda: sum(each.events > 3 for each in readers) > STREAMS // 2)
        with held_still(*groups.values()):
            rows = await live(http, gateway)
            killed = max(groups, key=lambda name: sum(backend(row) == name for row in rows.values()))
            hit = [each for each in readers if each.id in rows and backend(rows[each.id]) == killed]
            if len(hit) > FEW:
                groups[killed].kill()
        seen = await asyncio.gather(*reading)
    assert [(each.error, each.ended, each.finish) for each in seen] == [(None, True, "length")] * STREAMS
    assert [(each.text, each.counts["completion_tokens"]) for each in seen] == [
        (answer.text, TOKENS) for answer in answers
    ]
    return hit if len(hit) > FEW else []
