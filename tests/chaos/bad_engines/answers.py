"""Requests, and what clients make of their answers."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from enginehouse.relay.events.sse import read_events
from tests.chaos.bad_engines.faulty_engine import MODEL, right_answer, said_in
from tests.chaos.bad_engines.virtual_gateway import VirtualGateway
from tests.support.raw_client import RawResponse
from tests.support.served_gateway import ServedGateway

_CHAT = "/v1/chat/completions"


async def outcomes(gateway: VirtualGateway, count: int, *, streamed: bool, at_once: bool = False) -> Counter[str]:
    """What becomes of ``count`` chats, one after the other or all at once."""
    asks = [_outcome(gateway, number, streamed) for number in range(count)]
    return Counter(await asyncio.gather(*asks) if at_once else [await ask for ask in asks])


async def _outcome(gateway: VirtualGateway, number: int, streamed: bool) -> str:
    messages = [{"role": "user", "content": f"Number {number}"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 40, "stream": streamed}
    expected, _ = said_in(right_answer(_CHAT, msgspec.json.encode({**body, "stream": True})).pieces)
    try:
        reply = await gateway.ask(ServedGateway.post(body))
    except asyncio.TimeoutError:
        return "hung"
    if reply.status != 200:
        return "error" if reply.whole and reply.code else "wrong"
    return _streamed(reply, expected) if streamed else _plain(reply, expected)


def _plain(reply: RawResponse, expected: str) -> str:
    if not reply.whole:
        return "cut"
    try:
        text = msgspec.json.decode(reply.body)["choices"][0]["message"]["content"]
    except (msgspec.DecodeError, LookupError):
        return "wrong"
    return "right" if text == expected else "wrong"


def _streamed(reply: RawResponse, expected: str) -> str:
    events = [event for event in read_events(reply.body) if event.data is not None]
    failed = any(event.name == "error" for event in events)
    text, done = said_in(event.data or b"" for event in events if event.name != "error")
    if failed:
        fits = expected.startswith(text) or text.startswith(expected)  # an endless engine says more
        return "error" if fits and not done and reply.whole else "wrong"
    if not done or not reply.whole:
        return "cut"
    return "right" if text == expected else "wrong"
