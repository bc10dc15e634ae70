"""What services know of live requests, and what they do with them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from enginehouse.app.services.service_access import GatewayInForce, ServiceAccess
from enginehouse.app.services.service_calls import ServiceCalls
from enginehouse.domain.errors import Forbidden
from enginehouse.domain.plugin_id import PluginId
from enginehouse.errors import NotFound
from enginehouse.services import GatewayCaller
from enginehouse_rescheduling.placed_requests import PlacedRequests
from tests.support.keys import key
from tests.support.model_engine import StartModelEngine
from tests.support.served_gateway import OpenGateway, ServedGateway


def seen_by_service(gateway: ServedGateway) -> ServiceAccess:
    whole = gateway.gateway
    seen = GatewayInForce(whole.config)
    seen.in_force = whole.current
    calls, warnings = ServiceCalls(PluginId("service", "test")), list[str]()
    return ServiceAccess(seen, whole.registry, whole.path.outside, calls, warnings.append)


async def test_a_stream_tells_its_tokens(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engines = [await model_engine(), await model_engine()]
    gateway = await house(*engines, backend={"driver": "vllm"})
    engines[0].gate = (6, asyncio.Event())
    live = PlacedRequests(seen_by_service(gateway))
    client = await gateway.client()
    body = {"prompt": "x" * 400, "max_tokens": 40, "stream": True}
    client.send(gateway.post(body, b"x-request-id: r1", path="/v1/completions"))
    await gateway.until(lambda: any(each.tokens().output for each in gateway.relay.live))

    [read] = live.at("a")
    assert (read.id, read.prompt_tokens, read.max_tokens, read.stays) == ("r1", 400, 40, None)
    assert 0 < read.output_tokens < 40
    assert live.at("b") == []
    [figures] = (await live.by_instance())["a"]
    assert (figures.request.prompt_tokens, figures.request.output_tokens) == (100, 0), "estimated, and not read"
    assert figures.read().max_tokens == 40
    engines[0].gate[1].set()
    await client.reply()


async def test_the_tokens_of_a_stream_without_token_ids_are_its_events(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    engines = [await model_engine(), await model_engine()]
    gateway = await house(*engines, backend={"driver": "llamacpp"})
    engines[0].gate = (6, asyncio.Event())
    client = await gateway.client()
    body = {"messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 40, "stream": True}
    client.send(gateway.post(body))
    await gateway.until(lambda: any(each.tokens().output for each in gateway.relay.live))
    engines[0].gate[1].set()
    await client.reply()


async def test_another_request_tells_what_it_needs(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engine = await model_engine()
    gateway = await house(engine)
    held = asyncio.Event()
    engine.scripts = [(held, engine.answer(b"{}"))]
    client = await gateway.client()
    client.send(gateway.post({"messages": [{"role": "user", "content": "x" * 400}]}))
    await gateway.until(lambda: engine.calls)

    [read] = PlacedRequests(seen_by_service(gateway)).at("a")
    assert (read.prompt_tokens, read.output_tokens, read.max_tokens) == (100, 0, None)
    assert read.stays == "its answer has not begun"
    held.set()
    await client.reply()


async def test_a_service_sees_who_asks_and_ends_a_request(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engine = await model_engine()
    gateway = await house(engine)
    engine.scripts = [(asyncio.Event(), engine.answer(b"{}"))]
    client = await gateway.client()
    client.send(gateway.post({}, b"x-request-id: r1"))
    await gateway.until(lambda: engine.calls)
    service = seen_by_service(gateway)

    await gateway.until(lambda: [each.backend for each in service.requests] == ["a"])
    [request] = service.requests
    assert (request.id, request.caller, request.model, request.waits) == ("r1", None, "m", False)
    with pytest.raises(NotFound):
        service.requests.cancel("other")
    service.requests.cancel("r1")
    assert (await client.reply()).status == 499


async def test_a_service_sends_a_request_of_its_own(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engine = await model_engine()
    gateway = await house(engine)
    service = seen_by_service(gateway)
    answer = await service.requests.submit("/v1/completions", b'{"model": "m", "prompt": "x"}')
    assert answer.status == 200
    assert answer.body == b"{}"
    refused = await service.requests.submit("/v1/completions", b'{"model": "unknown"}')
    assert (refused.status, b"model_not_found" in refused.body) == (404, True)
    with pytest.raises(NotFound):
        await service.requests.submit("/api/status", b"{}")


async def test_a_service_sends_a_request_for_a_caller(house: OpenGateway, model_engine: StartModelEngine) -> None:
    engine = await model_engine()
    gateway = await house(engine, auth={"keys": [key("ann", models=["m"], requests_per_minute=1)]})
    gateway.gateway.engines.remote.report("a", 1)
    service = seen_by_service(gateway)
    ann = service.caller([(b"authorization", b"Bearer ann-secret")])
    assert ann == GatewayCaller("ann", ("m",))

    async def ask(model: str) -> tuple[int, str | None]:
        body = msgspec.json.encode({"model": model, "prompt": "x"})
        answer = await service.requests.submit("/v1/completions", body, caller=ann, priority=-7)
        return answer.status, next(gateway.relay.context.activity.newest_first()).record.caller

    engine.scripts = [(asyncio.Event(), engine.answer(b"{}"))]
    first = asyncio.ensure_future(service.requests.submit("/v1/completions", b'{"model": "m", "prompt": "x"}'))
    await gateway.until(lambda: engine.calls)
    asked = asyncio.ensure_future(ask("m"))
    await gateway.until(lambda: [each.waits for each in service.requests] == [False, True])
    _, live = gateway.relay.live
    assert (live.ticket and live.ticket.priority, live.state().caller) == (-7, "ann")
    first.cancel()
    asked.cancel()
    await gateway.until(lambda: not gateway.relay.live)
    assert await ask("other") == (403, "ann")
    assert await ask("m") == (429, "ann")
    with pytest.raises(Forbidden, match="Key 'bob' does not exist any more"):
        await service.requests.submit("/v1/completions", b"{}", caller=GatewayCaller("bob"))


async def test_a_request_with_a_priority_and_no_caller_is_the_service_s(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    gateway = await house(await model_engine())
    service = seen_by_service(gateway)
    await service.requests.submit("/v1/completions", b'{"model": "m", "prompt": "x"}', priority=-7)
    assert next(gateway.relay.context.activity.newest_first()).record.caller == "service/test"


async def test_a_request_that_leaves_caches_to_others_says_so_as_its_engine_takes_it(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    engine = await model_engine()
    gateway = await house(engine, backend={"driver": "llamacpp"})
    gateway.gateway.engines.remote.report("a", 4)
    service = seen_by_service(gateway)
    for aside in (True, False):
        answer = await service.requests.submit("/v1/completions", b'{"model": "m", "prompt": "x"}', aside=aside)
        assert answer.status == 200, answer.body
    assert [msgspec.json.decode(each.body).get("id_slot") for each in engine.calls] == [0, None]
