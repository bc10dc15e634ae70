"""Clients recognise the errors of engines, whatever these call them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import MODEL, OpenGateway

VLLM = {"message": "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens."}
LLAMACPP = {"code": 400, "type": "exceed_context_size_error", "message": "m", "n_prompt_tokens": 5000, "n_ctx": 4096}
CHAT: dict[str, object] = {"messages": [{"role": "user", "content": "Tell"}], "max_tokens": 1}


def error_of(reply: RawResponse) -> Any:
    return msgspec.json.decode(reply.body)["error"]


def told(error: object) -> bytes:
    return msgspec.json.encode(error)


@pytest.mark.parametrize("body", [{"error": VLLM}, {"object": "error", **VLLM}, {"error": LLAMACPP}])
@pytest.mark.parametrize("status", [400, 413, 500])
async def test_a_prompt_that_an_engine_finds_too_long_has_openais_code(
    house: OpenGateway, engine: StartEngine, body: object, status: int
) -> None:
    served = await engine()
    gateway = await house(served)
    served.says(told(body), status)
    reply = await gateway.ask(gateway.post(CHAT))
    error = error_of(reply)
    assert (reply.status, error["code"]) == (400, "context_length_exceeded")
    assert (error["details"]["tokens"], error["details"]["limit"]) == (5000, 4096)
    assert error["message"].startswith("This model's maximum context length is 4096 tokens")
    assert "about" not in error["message"]


@pytest.mark.parametrize("native", [True, False])
async def test_anthropics_clients_get_anthropics_words(house: OpenGateway, engine: StartEngine, native: bool) -> None:
    served = await engine()
    gateway = await house(served, models={} if native else {MODEL: {"endpoints": []}})
    served.says(told({"error": LLAMACPP}), 400)
    reply = await gateway.ask(gateway.post(CHAT, path="/v1/messages"))
    error = error_of(reply)
    assert (reply.status, error["type"]) == (400, "invalid_request_error")
    assert error["message"] == "prompt is too long: 5000 tokens > 4096 maximum"


async def test_numbers_that_an_engine_does_not_tell_are_the_gateways(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, models={MODEL: {"context_length": 4096}})
    served.says(told({"error": {"message": "the request exceeds the available context size"}}), 400)
    error = error_of(await gateway.ask(gateway.post(CHAT)))
    assert (error["details"]["tokens"], error["details"]["limit"]) == (1, 4096)
    assert "about 1 tokens" in error["message"]


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_error_in_an_answer_of_status_200_counts_too(
    house: OpenGateway, engine: StartEngine, streamed: bool
) -> None:
    served = await engine()
    gateway = await house(served)
    body = told({"error": VLLM})
    if streamed:
        served.streams(b"data: " + body + b"\n\n", served.END)
    else:
        served.says(body)
    reply = await gateway.ask(gateway.post(CHAT, stream=streamed))
    assert (reply.status, error_of(reply)["code"]) == (400, "context_length_exceeded")
    assert len(served.calls) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"Not Found", "Backend 'a' answered 404: Not Found"),
        (b"", "Backend 'a' answered 404"),
        (b"<html>" + b"x" * 600, "Backend 'a' answered 404: <html>" + "x" * 494),
    ],
)
async def test_a_plain_text_becomes_an_error(house: OpenGateway, engine: StartEngine, text: bytes, shown: str) -> None:
    served = await engine()
    gateway = await house(served)
    head = b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nx-theirs: 1\r\n\r\n"
    served.plays(head % len(text) + text)
    reply = await gateway.ask(gateway.post(CHAT))
    error = error_of(reply)
    assert (reply.status, error["message"], error["code"]) == (404, shown, "upstream_error")
    assert (reply.header("content-type"), reply.header("x-theirs")) == ("application/json", "1")


async def test_other_errors_of_engines_pass_as_they_are(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    body = b'{"detail": "no such thing",  "x": 1}'
    served.says(body, 422)
    reply = await gateway.ask(gateway.post(CHAT))
    assert (reply.status, reply.body) == (422, body)


async def test_a_missing_capability_names_the_models_that_have_it(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    models = {MODEL: {"vision": False}, "seeing": {"vision": True}, "hidden": {"vision": True}}
    backends = {"x": {"url": served.url, "models": {**models, "unknown": {}}}}
    gateway = await house(backends=backends, models={"hidden": {"unlisted": True}})
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    reply = await gateway.ask(gateway.post(messages=[{"role": "user", "content": parts}]))
    error = error_of(reply)
    assert (reply.status, error["code"], error["details"]["models"]) == (400, "capability_mismatch", ["seeing"])
    assert error["message"].endswith("vision ('seeing' can serve it)")


async def test_a_prompt_that_is_too_long_names_models_with_a_longer_context(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    lengths = {MODEL: {"context_length": 100}, "long": {"context_length": 9000}, "short": {"context_length": 90}}
    gateway = await house(backends={"x": {"url": served.url, "models": lengths}})
    error = error_of(await gateway.ask(gateway.post(messages=[{"role": "user", "content": "x" * 4000}])))
    assert (error["code"], error["details"]["models"]) == ("context_length_exceeded", ["long"])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("body", [b'{"error":"\xff"}', b'{"error":' + b"[" * 20_000])
async def test_a_refusal_that_nobody_can_read_keeps_its_status(
    house: OpenGateway, engine: StartEngine, body: bytes, path: str
) -> None:
    served = await engine()
    gateway = await house(served, models={MODEL: {"endpoints": []}})
    served.says(body, 400)
    reply = await gateway.ask(gateway.post(CHAT, path=path))
    assert reply.status == 400
    assert error_of(reply)["message"].startswith("Backend 'a' answered 400: {")
    assert len(served.calls) == 1
