"""The error table of the HTTP surface: status, code and envelope of everything the gateway itself refuses."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway

VISION = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}]}
JSON_MODE = {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b'{"model": "m"} x', None),
        (b"[]", None),
        (b'"m"', None),
        (b'{"model": "m", "x": \xff}', None),
        (b"{}", "model"),
        (b'{"model": ""}', "model"),
        (b'{"model": " \\t"}', "model"),
        (b'{"model": null}', "model"),
        (b'{"model": 7}', "model"),
        (b'{"model": "m", "messages": "hello"}', "messages"),
        (b'{"model": "m", "messages": [7]}', "messages"),
        (b'{"model": "m", "stream": "yes"}', "stream"),
        (b'{"model": "m", "tools": {}}', "tools"),
        (b'{"model": "m", "response_format": "json"}', "response_format"),
        (b"[" * 100_000, None),
    ],
)
async def test_a_body_that_cannot_be_read_is_an_invalid_request(
    house: OpenGateway, engine: StartEngine, body: bytes, param: str | None
) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    reply = await client.ask(gateway.post(body))
    assert (reply.status, reply.header("content-type")) == (400, "application/json")
    assert set(reply.error) == {"message", "type", "param", "code", "details"}
    assert (reply.code, reply.error["type"], reply.error["param"]) == (
        "invalid_request", "invalid_request_error", param,
    )  # fmt: skip
    assert served.calls == []
    assert (await client.ask(gateway.post())).status == 200, "the connection did not survive"


async def test_an_unknown_path_is_not_found(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    for request in (gateway.get("/nothing"), gateway.post(path="/v1/nothing")):
        reply = await gateway.ask(request)
        assert (reply.status, reply.code) == (404, "not_found")


async def test_a_page_names_its_request_too(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    paths = ("/nothing", "/health", "/v1/models/nothing", "/api/status", "/v1/chat/completions")
    ids = {(await gateway.ask(gateway.get(path))).value("x-request-id") for path in paths}
    assert len(ids) == len(paths)
    assert (await gateway.ask(gateway.get("/nothing", b"x-request-id: mine"))).value("x-request-id") == "mine"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_wrong_method_is_not_allowed(house: OpenGateway, engine: StartEngine, method: str) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.get("/v1/chat/completions", method=method))
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert reply.header("allow") == "POST"


async def test_an_unknown_model_is_not_found(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), routing={"aliases": {"gpt-4": "gone"}})
    reply = await gateway.ask(gateway.post({"model": "other"}))
    assert (reply.status, reply.code, reply.error["param"]) == (404, "model_not_found", "model")
    reply = await gateway.ask(gateway.post({"model": "gpt-4"}))
    assert (reply.status, reply.code) == (404, "model_not_found")
    assert "'gpt-4'" in reply.error["message"]
    assert "'gone'" in reply.error["message"]


async def test_a_model_without_a_healthy_backend_is_unavailable(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), checks={"failures": 1})
    gateway.fleet.failed("a", "gone")
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (503, "no_healthy_backend")
    assert int(reply.value("retry-after")) > 0


async def test_a_draining_backend_gets_no_new_requests(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    assert (await gateway.ask(gateway.get("/api/backends/a/drain", method="POST"))).status == 200
    assert (await gateway.ask()).code == "no_healthy_backend"
    assert (await gateway.ask(gateway.get("/api/backends/a/undrain", method="POST"))).status == 200
    assert (await gateway.ask()).status == 200


async def test_every_missing_capability_is_listed(house: OpenGateway, engine: StartEngine) -> None:
    card = {"vision": False, "tools": False, "json_mode": False, "context_length": 1}
    gateway = await house(await engine(), backend={"models": {"m": card}})
    reply = await gateway.ask(gateway.post({**VISION, **TOOLS, **JSON_MODE, "prompt": "long " * 100}))
    assert (reply.status, reply.code) == (400, "capability_mismatch")
    assert reply.error["details"]["missing"] == ["vision", "tools", "json_mode", "context_length"]


async def test_a_spent_fallback_chain_lists_what_was_attempted(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(
        await engine(), routing={"fallbacks": {"m": ["n", "o"]}}, checks={"failures": 1}, backend={"models": ["m", "n"]}
    )
    gateway.fleet.failed("a", "gone")
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (503, "fallback_exhausted")
    assert reply.error["details"]["attempted"] == ["m", "n", "o"]
    assert reply.header("retry-after")


async def test_a_fallback_serves(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, routing={"fallbacks": {"big": ["m"]}})
    reply = await gateway.ask(gateway.post({"model": "big"}))
    assert (reply.status, reply.header("x-enginehouse-reason")) == (200, "fallback")
    assert msgspec.json.decode(served.calls[0].body) == {"model": "m"}


async def test_a_defect_of_ours_is_an_internal_error(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await house(await engine())
    with monkeypatch.context() as patched:
        patched.setattr(gateway.relay.context, "upstreams", {})
        reply = await gateway.ask()
    assert (reply.status, reply.code) == (500, "internal_error")
    assert "'a'" not in reply.error["message"]
    assert "KeyError: 'a'" in caplog.text
    await gateway.quiet()
    assert (await gateway.ask()).status == 200


async def test_what_is_not_http_is_answered_and_the_connection_closed(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    reply = await client.ask(b"NONSENSE\r\n\r\n")
    assert reply.status == 400
    assert await client.rest() == b""
