"""Responses that engines store themselves: what follows one goes to the engine that has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enginehouse_protocols.responses.engine_responses import EngineResponses
from tests.support.keys import bearer, key
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

PATH = "/v1/responses"
TURNS = {"strategy": "round_robin"}


def response(id: str, **more: Any) -> dict[str, Any]:
    output = [{"type": "message", "id": "msg_other", "role": "assistant", "content": []}]
    return {"output": output, "id": id, "object": "response", "status": "completed", **more}


def whole(id: str, **more: Any) -> bytes:
    return json.dumps(response(id, **more)).encode()


def event(type: str, **fields: Any) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n".encode()


async def asks(gateway: ServedGateway, *lines: bytes, **fields: Any) -> RawResponse:
    return await gateway.ask(gateway.post({"input": "hi", **fields}, *lines, path=PATH))


async def two(house: OpenGateway, engine: StartEngine, **sections: Any) -> tuple[ServedGateway, list[ScriptedEngine]]:
    engines = [await engine(), await engine()]
    return await house(*engines, routing=TURNS, **sections), engines


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_continued_where_it_is(
    house: OpenGateway, engine: StartEngine, stream: bool, ending: bytes
) -> None:
    gateway, engines = await two(house, engine)
    for number in range(8):
        id = f"resp_{number}"
        began = event("response.created", response=response(id, status="in_progress"))
        ended = event("response.completed", response=response(id))
        for each in engines:
            if stream:
                each.streams(b": keep-alive\n\n".replace(b"\n", ending), began.replace(b"\n", ending), ended, each.END)
            else:
                each.says(whole(id))
        before = {} if number < 2 else {"previous_response_id": f"resp_{number % 2}"}
        reply = await asks(gateway, stream=stream, **before)
        assert reply.status == 200
        assert reply.value("x-enginehouse-backend") == "ab"[number % 2]
        assert reply.value("x-enginehouse-protocol") == "native"
        for each in engines:
            each._scripts.clear()
    for _ in range(3):
        engines[0].says(whole("resp_last"))
        assert (await asks(gateway, previous_response_id="resp_6")).value("x-enginehouse-backend") == "a"
    assert json.loads(engines[0].calls[-1].body)["previous_response_id"] == "resp_6"


async def test_no_other_engine_continues_a_response(house: OpenGateway, engine: StartEngine) -> None:
    gateway, engines = await two(house, engine)
    engines[0].says(whole("resp_1"))
    await asks(gateway)
    engines[0].says(b'{"error": {"message": "busy"}}', 503)
    assert (await asks(gateway, previous_response_id="resp_1")).status == 503
    gateway.fleet.drain("a")
    lost = await asks(gateway, previous_response_id="resp_1")
    assert (lost.status, lost.code) == (503, "no_healthy_backend")
    assert not engines[1].calls
    models = {MODEL: {"endpoints": [PATH]}, "other": {"endpoints": [PATH]}}
    more = {"c": {"url": engines[1].url, "models": ["other"]}}
    gateway = await house(engines[0], routing=TURNS, models=models, backends=more)
    engines[0].says(whole("resp_2"))
    await asks(gateway)
    refused = await asks(gateway, previous_response_id="resp_2", model="other")
    assert (refused.status, refused.error["param"]) == (400, "previous_response_id")
    assert "Backend 'a'" in refused.error["message"]


async def test_engines_are_asked_for_a_response_that_another_gateway_has_got(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway, engines = await two(house, engine)
    for each, status in zip(engines, (404, 200), strict=True):
        each.says(whole("resp/9"), status)
    engines[1].says(whole("resp_10"))
    for before in ("resp/9", "resp_10"):
        reply = await asks(gateway, previous_response_id=before)
        assert (reply.status, reply.value("x-enginehouse-backend")) == (200, "b")
    assert engines[0].calls[0].request_line == b"GET /v1/responses/resp%2F9 HTTP/1.1"
    assert len(engines[0].calls) == 1
    for each in engines:
        each.otherwise((each.answer(b'{"error": {"message": "No such response"}}', 404),))
    assert (await asks(gateway, previous_response_id="resp_11")).status == 404
    assert all(backend.health.value == "healthy" for backend in gateway.fleet.backends())


@pytest.mark.parametrize("asked", [{"store": False}, {}])
async def test_what_is_not_stored_is_not_looked_for(
    house: OpenGateway, engine: StartEngine, asked: dict[str, Any]
) -> None:
    gateway, engines = await two(house, engine)
    engines[0].says(whole("resp_1", **({} if asked else {"store": False})))
    await asks(gateway, **asked)
    assert (await gateway.ask(gateway.get(f"{PATH}/resp_1"))).status == 404
    assert len(engines[0].calls) == 1


@pytest.mark.parametrize("odd", [b'{"id": 5}', b"[]", b'{"id": "%s"}' % (b"x" * 600), b"{}", b'{"id": null}'])
async def test_an_answer_without_an_id_passes(house: OpenGateway, engine: StartEngine, odd: bytes) -> None:
    gateway, engines = await two(house, engine)
    engines[0].says(odd)
    reply = await asks(gateway)
    assert (reply.status, reply.body) == (200, odd)
    engines[1].streams(b"data: {\n\n", event("response.completed", response=None), engines[1].END)
    assert (await asks(gateway, stream=True)).status in (200, 502)
    assert (await asks(gateway, previous_response_id=5)).status == 200


async def test_the_pages_of_a_response_are_those_of_its_engine(house: OpenGateway, engine: StartEngine) -> None:
    gateway, engines = await two(house, engine)
    engines[0].says(whole("resp_0"))
    engines[1].says(whole("resp/1"))
    for _ in range(2):
        await asks(gateway)
    page, other = f"{PATH}/resp_0", engines[0]
    for method, path, answer in (
        ("GET", page, whole("resp_0")),
        ("GET", f"{page}?include=usage", b'{"id": "resp_0", "usage": {}}'),
        ("GET", f"{page}/input_items?order=asc&limit=5", b'{"object": "list", "data": []}'),
        ("POST", f"{page}/cancel", whole("resp_0", status="cancelled")),
        ("DELETE", page, b'{"id": "resp_0", "object": "response", "deleted": true}'),
    ):
        other.says(answer)
        lines = [b"content-length: 0"] if method == "POST" else []
        reply = await gateway.ask(gateway.get(path, *lines, method=method))
        assert (reply.status, reply.body) == (200, answer)
        assert other.calls[-1].request_line.startswith(f"{method} {path} HTTP".encode())
    before = len(other.calls)
    assert (await gateway.ask(gateway.get(page))).status == 404  # it is deleted
    assert (await gateway.ask(gateway.get(f"{PATH}/none"))).status == 404
    assert len(other.calls) == before


async def test_an_engines_refusal_of_a_page_has_its_words(house: OpenGateway, engine: StartEngine) -> None:
    gateway, engines = await two(house, engine)
    engines[0].says(whole("resp_0"))
    await asks(gateway)
    for status, body, told in (
        (404, b'{"error": {"message": "No such response", "code": 404}}', 404),
        (400, b'{"object": "error", "message": "No such response", "code": 400}', 400),
        (405, b'{"detail": "No such response"}', 405),
        (409, b'{"error": "No such response"}', 409),
        (500, b'{"error": {"message": "No such response"}}', 502),
        (400, b'"', 400),
    ):
        engines[0].says(body, status)
        reply = await gateway.ask(gateway.get(f"{PATH}/resp_0"))
        assert reply.status == told
        assert "No such response" in reply.error["message"] or f"answered {status}" in reply.error["message"]
    assert (await gateway.ask(gateway.get(f"{PATH}/resp_0?stream=true"))).status == 400


async def test_an_engines_response_belongs_to_the_key_that_asked_for_it(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway, engines = await two(house, engine, auth={"keys": [key("ann"), key("ben")]})
    engines[0].says(whole("resp_0"))
    await asks(gateway, bearer("ann"))
    calls = len(engines[0].calls) + len(engines[1].calls)
    spelt = json.dumps({"model": MODEL, "input": "hi", "previous_response_id": "resp_0"}).replace(
        "resp_", "\\u0072esp_"
    )
    for body in (spelt, spelt.replace('"prev', '"\\u0070rev')):
        reply = await gateway.ask(gateway.post(body.encode(), bearer("ben"), path=PATH))
        assert (reply.status, reply.error["param"]) == (400, "previous_response_id")
    for method in ("GET", "DELETE"):
        reply = await gateway.ask(gateway.get(f"{PATH}/resp_0", bearer("ben"), method=method))
        assert reply.status == 404
    assert (await gateway.ask(gateway.post(b"", bearer("ben"), path=f"{PATH}/resp_0/cancel"))).status == 404
    assert (await gateway.ask(gateway.get(f"{PATH}/resp_0"))).status == 401
    assert len(engines[0].calls) + len(engines[1].calls) == calls
    for _ in range(2):
        engines[0].says(whole("resp_2"))
        assert (await asks(gateway, bearer("ann"), previous_response_id="resp_0")).status == 200


async def test_all_processes_and_the_next_gateway_know_where_a_response_is(tmp_path: Any) -> None:
    one, two, later = EngineResponses(), EngineResponses(), EngineResponses()
    for each in (one, two, later):
        each.open(tmp_path)
    assert not any(tmp_path.iterdir())  # nothing is stored yet
    assert one.watch("ann")("gpu-1", whole("resp_0"))
    assert await two.backend("resp_0", "ann") == "gpu-1"
    two.watch("ann")("gpu-2", whole("resp_1"))
    assert await one.backend("resp_1", "ann") == "gpu-2"
    assert await later.backend("resp_0", "ann") == "gpu-1"
