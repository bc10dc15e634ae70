"""One engine reads prompts and another one answers, behind the same stream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from functools import partial

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.parallel import all_of
from tests.support.stream_reader import Reader

CONFIGURATION = """
[routing]
strategy = "llumnix_load"

[rescheduling]
enabled = true
interval = "100ms"
policies = []

[backends.reads]
driver = "sim"
url = "{reads}"
role = "prefill"

[backends.answers]
driver = "sim"
url = "{answers}"
role = "decode"
"""
PROMPT = "all aboard " * 400


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    reads, answers = (SimEngine("m") for _ in range(2))
    with all_of(reads, answers):
        yield reads, answers


@pytest.fixture(scope="module")
def gateway(engines: tuple[SimEngine, SimEngine]) -> Iterator[RunningGateway]:
    reads, answers = engines
    with RunningGateway(CONFIGURATION.format(reads=reads.url, answers=answers.url)) as gateway:
        gateway.until_health(reads="healthy", answers="healthy")
        with plain_httpx.Client(base_url=gateway.url) as client:
            gateway.until(lambda _: len(client.get("/api/cluster").json()["instances"]) == 2)
            gateway.until(lambda _: client.post("/v1/completions", json=body(tokens=1)).status_code == 200)
        yield gateway


def body(tokens: int) -> dict[str, object]:
    return {"model": "m", "prompt": PROMPT, "max_tokens": tokens}


def computed(engine: SimEngine) -> float:
    return engine.metric("iteration_tokens_total_sum")


def readers() -> list[Reader]:
    """Chats with short prompts, and completions with long ones."""
    made = [Reader(number, 40, return_token_ids=True) for number in range(6)]
    for reader in made[::2]:
        reader.body["prompt"] = f"{reader.id} {PROMPT}"
    return made


async def test_a_stream_is_whole_and_its_prompt_is_read_once_elsewhere(
    gateway: RunningGateway, engines: tuple[SimEngine, SimEngine]
) -> None:
    reads, answers = engines
    async with plain_httpx.AsyncClient() as client:
        before = computed(reads), computed(answers)
        seen = await asyncio.gather(*(each.read(client, gateway.url) for each in readers()))
        read, answered = computed(reads) - before[0], computed(answers) - before[1]
        whole = await asyncio.gather(*(each.read(client, answers.url) for each in readers()))
    assert [(*each.answer, each.counts) for each in seen] == [(*each.answer, each.counts) for each in whole]
    assert read > 3 * 800, "the prompts"
    assert answered < 6 * 60, "the answers, and the last token of each prompt"


async def test_a_whole_answer_names_the_engine_that_gave_it(gateway: RunningGateway) -> None:
    async with plain_httpx.AsyncClient() as client:
        response = await client.post(f"{gateway.url}/v1/completions", json=body(tokens=5))
    assert response.headers["x-enginehouse-backend"] == "answers"
    assert response.json()["usage"]["completion_tokens"] == 5


async def test_without_the_engine_that_reads_the_other_one_does_it_all(
    gateway: RunningGateway, engines: tuple[SimEngine, SimEngine]
) -> None:
    reads, _ = engines
    reads.fault("drop", after=0)
    try:
        async with plain_httpx.AsyncClient() as client:
            response = await client.post(f"{gateway.url}/v1/completions", json=body(tokens=5))
    finally:
        reads.clear()
    assert response.status_code == 200
    assert response.json()["usage"]["completion_tokens"] == 5


async def test_the_explanation_names_both_engines(gateway: RunningGateway) -> None:
    async with plain_httpx.AsyncClient() as client:
        url = f"{gateway.url}/api/explain/route?path=/v1/completions"
        explanation = (await client.post(url, json=body(tokens=5))).json()
    assert (explanation["prefill"], explanation["chosen"]) == ("m@reads", "m@answers")


LAUNCHED = """
[routing]
strategy = "slo"

[rescheduling]
enabled = true
adaptive_pd = true
interval = "100ms"
policies = []

[models.m]
driver = "sim"
replicas = 2
preload = true
"""


def test_engines_that_the_gateway_launches_hand_prompts_over_too() -> None:
    with RunningGateway(LAUNCHED) as gateway:
        gateway.until(lambda status: {each["state"] for each in status["backends"]} == {"ready"})
        with plain_httpx.Client(base_url=gateway.url) as client:
            explain = partial(client.post, "/api/explain/route?path=/v1/completions", json=body(tokens=5))
            gateway.until(lambda _: "prefill" in explain().json())
            response = client.post("/v1/completions", json=body(tokens=5))
            [decision] = client.get("/api/decisions?limit=1").json()["decisions"]
            tokens = {each: computed_at(gateway, decision[each].partition("@")[2]) for each in ("prefill", "chosen")}
    assert response.json()["usage"]["completion_tokens"] == 5
    assert tokens["prefill"] > 800
    assert tokens["chosen"] < 20


def computed_at(gateway: RunningGateway, backend: str) -> float:
    """The tokens that a launched engine has computed. Its first line may arrive later than its first answer."""

    def listening() -> list[str]:
        printed = plain_httpx.get(f"{gateway.url}/api/logs/{backend}").text
        return re.findall(r"listening on (http://127\.0\.0\.1:\d+)", printed)

    gateway.until(lambda _: bool(listening()))
    page = plain_httpx.get(f"{listening()[-1]}/metrics").text
    found = re.search(r"^vllm:iteration_tokens_total_sum\S* (\S+)", page, re.MULTILINE)
    assert found is not None
    return float(found[1])
