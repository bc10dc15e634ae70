"""What the ASGI door tells its client when the server stops."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from enginehouse.api.doors.asgi import AsgiDoor
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.waiting import until


@pytest.mark.parametrize("slow", ["client", "engine"])
async def test_a_request_that_is_not_done_is_refused(house: OpenGateway, engine: StartEngine, slow: str) -> None:
    served, waits = await engine(), asyncio.Event()
    gateway = await house(served)
    served.plays(asyncio.Event())
    arriving: list[Message] = [
        {"type": "http.request", "body": b'{"model": "m", "messages": []}', "more_body": slow == "client"}
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        if arriving:
            return arriving.pop()
        waits.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/v1/chat/completions", "headers": []}
    serving = asyncio.ensure_future(AsgiDoor(gateway.gateway.admission)(scope, receive, send))
    await waits.wait()
    await until(lambda: slow == "client" or len(served.calls) == 1)
    serving.cancel()
    await serving
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert (sent[0]["status"], b'"shutting_down"' in sent[1]["body"]) == (503, True)
    await gateway.quiet()
