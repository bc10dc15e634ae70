"""What a client of a translated protocol gets is what the record says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway

ODD = b'data: {"choices": [{"delta": {"content": 5}}]}\n\n'
BACKEND = {"models": ["m", "n"]}


def delta(text: str) -> bytes:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: %s\n\n" % json.dumps(chunk).encode()


async def asked(gateway: ServedGateway, *, stream: bool) -> tuple[RawResponse, dict[str, Any]]:
    """The answer to a request in Anthropic's protocol, and its record."""
    body = {"model": "n", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    reply = await gateway.ask(gateway.post(body, b"x-request-id: r1", path="/v1/messages"))
    await gateway.until(lambda: not gateway.relay.live)
    return reply, msgspec.json.decode((await gateway.ask(gateway.get("/api/requests/r1"))).body)


async def test_an_answer_that_cannot_be_translated_is_no_success(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, backend=BACKEND)
    served.says(b'{"choices": 5}')
    reply, record = await asked(gateway, stream=False)
    assert (reply.status, record["status"], record["code"]) == (502, 502, "upstream_error")


@pytest.mark.parametrize("how", ["at once", "in pieces", "very long"])
async def test_nothing_follows_an_event_that_cannot_be_translated(
    house: OpenGateway, engine: StartEngine, how: str
) -> None:
    served, gate = await engine(), asyncio.Event()
    gate.set()
    gateway = await house(served, backend=BACKEND)
    events = [delta("before"), *(delta("x" * 99) for _ in range(100 if how == "very long" else 0)), ODD, delta("after")]
    pieces = events if how == "in pieces" else [b"".join(events)]
    steps = [step for piece in pieces for step in (piece, gate)]
    served.streams(*steps, b"data: [DONE]\n\n", served.END)
    reply, record = await asked(gateway, stream=True)
    assert b"before" in reply.body
    assert b"after" not in reply.body
    assert reply.body.count(b"event: error") == 1
    assert b"message_stop" not in reply.body
    assert (record["status"], record["code"]) == (502, "upstream_error")
