"""Without the plugin that continues streams, each one ends with its engine, and says so."""

from __future__ import annotations

import asyncio

import pytest

from enginehouse.config.schema import PluginSettings
from enginehouse.domain.errors import CannotContinue
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from tests.gateway.relay.continuation.test_broken_engines import CHAT, FAULTS, VLLM, ask, body, continued, unbroken
from tests.support.model_engine import Break, StartModelEngine
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway


@pytest.fixture(scope="session")
def registry() -> Registry:
    return load_plugins(PluginSettings(disabled=["continuation"])).registry


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_stream_ends_with_an_error(
    house: OpenGateway, model_engine: StartModelEngine, fault: str
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(9, *FAULTS[fault])]
    reply = await gateway.ask(gateway.post(body(), path=CHAT))
    assert (reply.status, b"[DONE]" in reply.body, b'"code":"upstream_error"' in reply.body) == (200, False, True)
    assert (continued(gateway), other.calls) == ({}, [])


async def test_streams_pass_as_they_come_and_engines_are_asked_for_nothing_more(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    assert (await ask(gateway, CHAT, body())).answer == unbroken(CHAT, body()).answer
    assert "return_token_ids" not in first.asked()


async def test_a_live_stream_stays_where_it_is(house: OpenGateway, engine: StartEngine) -> None:
    served, other, rest = await engine(), await engine(), asyncio.Event()
    gateway = await house(served, other, backend=VLLM)
    served.streams(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', rest, served.END)
    client = await gateway.client()
    client.send(gateway.post(b'{"model": "m", "stream": true, "messages": []}'))
    await client.head()
    await client.chunk()
    [live] = gateway.relay.live
    assert live.why_not_movable == "it is not a stream that another backend could continue"
    with pytest.raises(CannotContinue, match="stays where it is"):
        await live.move("b")
    rest.set()
    await gateway.quiet()
