"""Whatever happens to a request, its answer is the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_sim.simulator.model.text import encode, text_of
from tests.support import plain_httpx as http

LENGTH = 60


async def first_tokens(client: httpx.AsyncClient, path: str, count: int, **body: Any) -> tuple[list[int], str]:
    """The first tokens of a stream and their text; then the client leaves."""
    token_ids: list[int] = []
    text = ""
    asked = {"model": "tiny", "max_tokens": LENGTH, "stream": True, "return_token_ids": True, **body}
    async with client.stream("POST", path, json=asked) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                choice = json.loads(line.removeprefix("data: "))["choices"][0]
                token_ids += choice.get("token_ids", ())
                text += choice["delta"]["content"] if "delta" in choice else choice["text"]
            if len(token_ids) >= count:
                return token_ids, text
    raise AssertionError("the stream ended early")


async def whole(client: httpx.AsyncClient, path: str, **body: Any) -> str:
    answer = (await client.post(path, json={"model": "tiny", "max_tokens": LENGTH, **body})).json()
    choice = answer["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


@pytest.mark.parametrize("count", [1, 7, 30])
async def test_a_chat_left_in_mid_stream_continues_exactly(
    engine: SimEngine, eventually: Callable[[Callable[[], bool]], bool], count: int
) -> None:
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Tell me of steam"}]
    path = "/v1/chat/completions"
    with SimEngine("tiny", tpot="5ms", block_size=4) as slow:
        async with http.AsyncClient(base_url=slow.url) as client:
            token_ids, begun = await first_tokens(client, path, count, messages=messages)
        assert eventually(lambda: slow.running() == 0)
        assert slow.metric("kv_cache_usage_perc") == 0
    async with http.AsyncClient(base_url=engine.url) as client:
        rest = await whole(
            client,
            path,
            messages=[*messages, {"role": "assistant", "content": begun}],
            max_tokens=LENGTH - len(token_ids),
            continue_final_message=True,
            add_generation_prompt=False,
        )
        assert begun + rest == await whole(client, path, messages=messages)


@pytest.mark.parametrize("by_ids", [True, False], ids=["token ids", "text"])
async def test_a_completion_left_in_mid_stream_continues_exactly(engine: SimEngine, by_ids: bool) -> None:
    path, prompt = "/v1/completions", "Once upon a line"
    async with http.AsyncClient(base_url=engine.url) as client:
        token_ids, begun = await first_tokens(client, path, 11, prompt=prompt)
        so_far: Any = [*encode(prompt), *token_ids] if by_ids else prompt + begun
        rest = await whole(client, path, prompt=so_far, max_tokens=LENGTH - len(token_ids))
        assert text_of(token_ids) + rest == await whole(client, path, prompt=prompt)


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"num_gpu_blocks": 150},
        {"max_num_batched_tokens": 16, "max_num_seqs": 7},
        {"num_spec_tokens": 3},
        {"profile": "polynomial", "speedup": 100},
        {"no_prefix_caching": ""},
    ],
    ids=["plain", "preempted", "cut up", "drafted", "timed", "uncached"],
)
async def test_fifty_at_once_get_what_each_gets_alone(engine: SimEngine, flags: dict[str, Any]) -> None:
    prompts = [f"Question {n % 25} of the day: " + "why is it so? " * (n % 4) for n in range(50)]
    path = "/v1/completions"
    more = {name: value for name, value in flags.items() if name != "no_prefix_caching"}
    if "no_prefix_caching" in flags:
        more["prefix_caching"] = False
    async with http.AsyncClient(base_url=engine.url) as client:
        alone = [await whole(client, path, prompt=prompt) for prompt in prompts]
    with SimEngine("tiny", block_size=4, **more) as crowded:
        async with http.AsyncClient(base_url=crowded.url, timeout=30) as client:
            together = await asyncio.gather(*(whole(client, path, prompt=prompt) for prompt in prompts))
        assert together == alone
        assert (crowded.metric("num_preemptions_total") > 0) == ("num_gpu_blocks" in flags)
        assert crowded.metric("kv_cache_usage_perc") == 0
