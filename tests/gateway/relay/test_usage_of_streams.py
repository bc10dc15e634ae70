"""The gateway asks for the usage of streams, counts it, and keeps it from clients that did not ask."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from enginehouse.callers import UsageRow
from enginehouse_callers.prices import Prices
from enginehouse_callers.usage_meter import UsageMeter
from tests.support.fake_clock import StoppedClock
from tests.support.keys import bearer, key
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway

USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
PLAIN: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in "abc"
]
LAST: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def stream(*events: dict[str, Any]) -> list[bytes]:
    return [*(b"data: %s\n\n" % json.dumps(event).encode() for event in events), b"data: [DONE]\n\n"]


def counted(gateway: ServedGateway) -> UsageMeter:
    meter = UsageMeter(lambda: 1_700_000_000.0, Prices({}))
    gateway.relay.context.usage, gateway.relay.context.asks_usage = meter, True
    return meter


def asked(served: ScriptedEngine) -> Any:
    return json.loads(served.calls[-1].body).get("stream_options")


async def rows(gateway: ServedGateway, meter: UsageMeter) -> list[UsageRow]:
    await gateway.quiet()
    return meter.take()


@pytest.mark.parametrize("separately", [True, False])
async def test_the_usage_is_counted_and_hidden(house: OpenGateway, engine: StartEngine, separately: bool) -> None:
    served = await engine()
    gateway = await house(served)
    meter = counted(gateway)
    pieces = stream(*PLAIN, LAST, {"choices": [], "usage": USAGE})
    served.streams(*(pieces if separately else [b"".join(pieces)]), served.END)
    reply = await gateway.ask(gateway.post({"stream": True}))
    assert asked(served) == {"include_usage": True}
    assert reply.body == b"".join(stream(*PLAIN, LAST))
    (row,) = await rows(gateway, meter)
    assert (row.tokens_in, row.tokens_cached, row.tokens_out) == (11, 8, 3)


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": False}])
async def test_what_the_client_says_stays(house: OpenGateway, engine: StartEngine, options: dict[str, bool]) -> None:
    served = await engine()
    gateway = await house(served)
    meter = counted(gateway)
    events = [*PLAIN, LAST, {"choices": [], "usage": USAGE}][: 5 if options["include_usage"] else 4]
    served.streams(*stream(*events), served.END)
    reply = await gateway.ask(gateway.post({"stream": True, "stream_options": options}))
    assert asked(served) == options
    assert reply.body == b"".join(stream(*events))
    (row,) = await rows(gateway, meter)
    assert row.tokens_out == 3, "counted, or one for each event"


async def test_an_engine_that_does_not_count_is_estimated(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    meter = counted(gateway)
    served.streams(*stream(*PLAIN, LAST), served.END)
    reply = await gateway.ask(gateway.post({"stream": True, "messages": [{"role": "user", "content": "x" * 40}]}))
    assert reply.body == b"".join(stream(*PLAIN, LAST))
    (row,) = await rows(gateway, meter)
    assert (row.tokens_in, row.tokens_out) == (10, 3)


async def test_without_a_usage_store_no_body_is_changed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(*stream(*PLAIN, LAST), served.END)
    assert (await gateway.ask(gateway.post({"stream": True}))).status == 200
    assert asked(served) is None


async def test_a_stream_that_goes_on_elsewhere_is_counted_once(house: OpenGateway, engine: StartEngine) -> None:
    first, second = await engine(), await engine()
    gateway = await house(first, second)
    meter = counted(gateway)
    first.streams(*stream(*PLAIN)[:3], first.RESET)
    second.streams(*stream(*PLAIN, LAST, {"choices": [], "usage": USAGE}), second.END)
    await gateway.ask(gateway.post({"stream": True}))
    (row,) = await rows(gateway, meter)
    assert row.requests == 1


ECHOED: dict[str, dict[str, Any]] = {
    "metadata": {"metadata": {"usage": {"input_tokens": 1, "output_tokens": 0}}},
    "text in metadata": {"metadata": {"x": '"usage":{"input_tokens":1,"output_tokens":0}}}'}},
    "a schema": {"tools": [{"parameters": {"properties": {"usage": {"output_tokens": 0}}}}]},
    "padding": {"metadata": {"usage": {"output_tokens": 2}}, "user": "x" * 8192},
    "many": {"metadata": [{"usage": {"output_tokens": 0}}] * 50},
}


@pytest.mark.parametrize("echoed", ECHOED.values(), ids=ECHOED)
@pytest.mark.parametrize("streamed", [True, False])
async def test_what_a_response_repeats_of_its_request_is_no_usage(
    house: OpenGateway, engine: StartEngine, echoed: dict[str, Any], streamed: bool
) -> None:
    served = await engine()
    gateway = await house(served)
    meter = counted(gateway)
    usage = {"input_tokens": 1000, "output_tokens": 500, "total_tokens": 1500}
    response = {"id": "r", "object": "response", "output": [], "usage": usage, **echoed}
    if streamed:
        last = {"type": "response.completed", "sequence_number": 1, "response": response}
        served.streams(b"event: response.completed\ndata: %s\n\n" % json.dumps(last).encode(), served.END)
    else:
        served.says(json.dumps(response).encode())
    reply = await gateway.ask(gateway.post({"input": "hi", "stream": streamed}, path="/v1/responses"))
    assert reply.status == 200
    [row] = await rows(gateway, meter)
    assert (row.tokens_in, row.tokens_out) == (1000, 500)


@pytest.mark.parametrize("streams", [True, False])
async def test_a_client_that_leaves_pays_for_the_prompt(house: OpenGateway, engine: StartEngine, streams: bool) -> None:
    """An engine has read it, whether or not the client waits for the answer; its limits and its usage have it."""
    served, clock = await engine(), StoppedClock(0.0)
    auth, prices = {"keys": [key("a", budget_per_day=0.0005)]}, {"m": {"input": 1.0, "output": 2.0}}
    gateway = await house(served, clock=clock, auth=auth, prices=prices)
    meter = UsageMeter(lambda: 1_700_000_000.0, Prices(gateway.gateway.path.config.prices))
    gateway.relay.context.usage = meter
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(None, bearer("a"), prompt="word " * 800, stream=streams))
    await served.call()
    client.close()
    (row,) = await rows(gateway, meter)
    assert row.tokens_in > 600
    assert row.cost is not None
    assert row.cost > 0.0005
    refused = await gateway.ask(gateway.post(None, bearer("a")))
    assert (refused.status, refused.code) == (429, "budget_exhausted")
