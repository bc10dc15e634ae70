from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from enginehouse import GatewayError
from enginehouse_sim.simulator.calibration.streams import EngineAddress, EngineFacts, engine_facts
from enginehouse_sim.simulator.steps.profile import EngineLimits

MODELS = {"/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]}}
LLAMA = {"/props": {"total_slots": 4, "default_generation_settings": {"n_ctx": 2048}}}
SGLANG = {"/get_server_info": {"max_running_requests": 64, "chunked_prefill_size": 512, "page_size": 1}}
VLLM = {
    "/metrics": 'vllm:cache_config_info{block_size="32",num_gpu_blocks="4096"} 1.0\n',
    "/server_info?config_format=json": {
        "vllm_config": {
            "scheduler_config": {"max_num_seqs": 16, "max_num_batched_tokens": 2048, "async_scheduling": True}
        }
    },
}
STREAM = b'data: {"choices":[{"text":"a","finish_reason":null}]}\n\n'


async def facts(pages: dict[str, Any], events: int = 24) -> EngineFacts:
    """What is found at an engine with these pages, which streams its 24 tokens in so many events."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
        page = pages.get(path)
        body = STREAM * events if path == "/v1/completions" else page.encode() if isinstance(page, str) else b""
        if isinstance(page, dict):
            body = json.dumps(page).encode()
        head = b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"
        kind = b"text/event-stream" if path == "/v1/completions" else b"text/plain"
        writer.write(head % (200 if body else 404, kind, len(body)) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return await engine_facts(EngineAddress(f"http://127.0.0.1:{port}", "m"), [1, 2, 3])


async def test_llamacpp_has_slots_and_plans_no_step_ahead() -> None:
    found = await facts({**MODELS, **LLAMA})
    limits = EngineLimits(max_num_seqs=4, max_model_len=2048, max_num_batched_tokens=2048, async_scheduling=False)
    assert (found.kind, found.limits) == ("llamacpp", limits)


async def test_vllm_and_sglang_tell_their_limits() -> None:
    vllm, sglang = await facts({**MODELS, **VLLM}), await facts({**MODELS, **SGLANG})
    assert (vllm.kind, sglang.kind) == ("vllm", "sglang")
    assert vllm.limits == EngineLimits(
        max_num_seqs=16,
        max_num_batched_tokens=2048,
        max_model_len=4096,
        block_size=32,
        total_gpu_blocks=4096,
        async_scheduling=True,
    )
    assert sglang.limits == EngineLimits(max_num_seqs=64, max_num_batched_tokens=512, max_model_len=4096, block_size=1)


async def test_other_engines_are_measured_without_limits_and_with_several_tokens_in_an_event() -> None:
    found = await facts(MODELS, events=8)
    assert (found.kind, found.limits, found.tokens_per_event) == ("openai", EngineLimits(max_model_len=4096), 3)


async def test_an_engine_that_streams_no_tokens_cannot_be_measured() -> None:
    with pytest.raises(GatewayError, match="streams no tokens one by one"):
        await facts(MODELS, events=1)
