"""Errors that the gateway itself makes on a path of a client's protocol: they have the form of that protocol."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest

from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.telemetry import plugin_failures
from enginehouse_kit.protocols import Envelope, Protocol, ProtocolRequest, Translation
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

OPERATOR, CALLER = (b"authorization: Bearer " + name for name in (b"operator", b"caller"))
ANTHROPICS = ("/v1/messages", "/v1/messages/count_tokens")
OLLAMAS = ("/api/chat", "/api/embed")
KEYS: dict[str, Any] = {
    "keys": [
        {"name": "operator", "key": "operator", "admin": True},
        {"name": "caller", "key": "caller", "models": [MODEL], "requests_per_minute": 1},
    ]
}


class Odd(Protocol):
    """A protocol with a form of its own, which it does not always find."""

    name: ClassVar[str] = "odd"
    paths = ("/v1/odd", "/v1/messages/odd", "/v1/odder/{model:path}:ask")
    pages = (("GET", "/v1/odd/page"),)
    fails: ClassVar[type[BaseException] | None] = None

    def translate(self, request: ProtocolRequest) -> Translation:
        raise ZeroDivisionError

    def error(self, status: int, envelope: Envelope) -> bytes:
        if self.fails is not None:
            raise self.fails("param")
        return msgspec.json.encode({"fault": envelope["error"]["message"]})


@pytest.fixture
def registry() -> Registry:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "odd", "module": "odd", "distribution": "odd", "version": "1"}
    registry.add([Registered(kind="protocol", type="odd", factory=Odd, **origin)])
    return registry


def form_of(reply: RawResponse) -> str:
    """Whose form an error has."""
    told = msgspec.json.decode(reply.body)
    error = told["error"]
    if told.get("type") == "error":
        assert {type(error["type"]), type(error["message"])} == {str}
        return "Anthropic's"
    if isinstance(error, str):
        return "Ollama's"
    assert {"message", "type", "param", "code", "details"} <= error.keys()
    return "OpenAI's"


async def opened(house: OpenGateway, engine: StartEngine) -> ServedGateway:
    return await house(await engine(), auth=KEYS)


def form_at(path: str) -> str:
    return "Anthropic's" if path in ANTHROPICS else "Ollama's"


@pytest.mark.parametrize("path", [*ANTHROPICS, *OLLAMAS])
async def test_a_path_without_an_engine_for_it(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway, form = await opened(house, engine), form_at(path)
    for method in ("GET", "PUT", "DELETE", "OPTIONS"):
        reply = await gateway.ask(gateway.get(path, method=method))
        assert (reply.status, form_of(reply), reply.header("allow")) == (405, form, "POST"), method
    for below in ("/nonsense", "/", "/nonsense/more?beta=true"):
        reply = await gateway.ask(gateway.post(path=path + below))
        assert (reply.status, form_of(reply)) == (404, form), below


@pytest.mark.parametrize("path", [*ANTHROPICS, *OLLAMAS])
async def test_a_refused_request(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served, form = await engine(), form_at(path)
    served.says(b'{"choices": [{"message": {"content": "ho"}}], "data": []}')
    gateway = await house(served, auth=KEYS)
    asked = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "input": "hi", "stream": False}
    assert (await gateway.ask(gateway.post(asked, CALLER, path=path))).status == 200
    refused = {
        401: gateway.post(asked, path=path),
        403: gateway.post({**asked, "model": "other"}, CALLER, path=path),
        404: gateway.post({**asked, "model": "other"}, OPERATOR, path=path),
        400: gateway.post(b"{", OPERATOR, path=path),
        413: gateway.get(path, OPERATOR, b"content-length: 999999999", method="POST"),
        429: gateway.post(asked, CALLER, path=path),
    }
    for status, request in refused.items():
        reply = await gateway.ask(request)
        assert (reply.status, form_of(reply)) == (status, form)
    gateway.refuse_new()
    reply = await gateway.ask(gateway.post(asked, OPERATOR, path=path))
    assert (reply.status, form_of(reply), reply.header("retry-after")) == (503, form, "1")


@pytest.mark.parametrize("path", ["/v1/messages", "/api/chat", "/v1/chat/completions"])
async def test_what_is_not_http(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await opened(house, engine)
    form = "OpenAI's" if path == "/v1/chat/completions" else form_at(path)
    for lines in ([b"transfer-encoding: gzip"], [b"x: " + b"x" * 70_000], [b"host: other"], [b"content-length: x"]):
        reply = await gateway.ask(gateway.get(path, b"host: localhost", *lines, method="POST"))
        assert (reply.status, form_of(reply)) == (400, form), lines[0][:20]
    reply = await gateway.ask(b"nonsense\r\n\r\n")
    assert (reply.status, form_of(reply)) == (400, "OpenAI's")


async def test_pages_of_ollama(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await opened(house, engine)
    for method, path, status in (
        ("POST", "/api/tags", 405),
        ("GET", "/api/show", 405),
        ("POST", "/api/version", 405),
        ("POST", "/api/create", 404),
        ("POST", "/api/copy", 404),
        ("POST", "/api/push", 404),
        ("POST", "/api/blobs/sha256:1", 404),
        ("GET", "/api/pull", 405),
        ("POST", "/api/delete", 405),
    ):
        reply = await gateway.ask(gateway.get(path, OPERATOR, method=method))
        assert (reply.status, form_of(reply)) == (status, "Ollama's"), path


@pytest.mark.parametrize(("line", "status"), [(b"x: y", 401), (CALLER, 403)])
async def test_pages_of_ollama_for_operators(house: OpenGateway, engine: StartEngine, line: bytes, status: int) -> None:
    gateway = await opened(house, engine)
    for method, path in (("POST", "/api/pull"), ("DELETE", "/api/delete")):
        reply = await gateway.ask(gateway.get(path, line, method=method))
        assert (reply.status, form_of(reply)) == (status, "Ollama's")
    for path in ("/api/status", "/api/keys"):
        reply = await gateway.ask(gateway.get(path, line))
        assert (reply.status, form_of(reply)) == (status, "OpenAI's")


async def test_lists_of_models(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await opened(house, engine)
    for path, line, status in (
        ("/v1/models", b"x: y", 401),
        ("/v1/models/none", b"x: y", 401),
        ("/v1/models/none", OPERATOR, 404),
    ):
        reply = await gateway.ask(gateway.get(path, line))
        assert (reply.status, form_of(reply)) == (status, "OpenAI's")
        reply = await gateway.ask(gateway.get(path, line, b"anthropic-version: 2023-06-01"))
        assert (reply.status, form_of(reply)) == (status, "Anthropic's")


@pytest.mark.parametrize("path", OLLAMAS)
async def test_an_engine_that_speaks_the_protocol_itself(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    gateway = await house(served, models={MODEL: {"endpoints": [path]}}, routing={"max_retries": 0})
    served.says(b"<html>bad gateway</html>", 502)
    reply = await gateway.ask(gateway.post(path=path))
    assert (reply.status, form_of(reply)) == (502, "Ollama's")
    await served.close()
    reply = await gateway.ask(gateway.post(path=path))
    assert (reply.status, form_of(reply)) == (502, "Ollama's")


async def test_only_the_beginning_of_a_long_path_is_looked_at(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await opened(house, engine)
    for path, form in ((f"/api/chat/{'x' * 60_000}", "Ollama's"), (f"/v1/odder/{'x' * 60_000}:ask", "OpenAI's")):
        reply = await gateway.ask(gateway.get(path))
        assert (reply.status, form_of(reply)) == (404 if form == "Ollama's" else 405, form)


@pytest.mark.parametrize("fails", [None, KeyError, SystemExit])
async def test_a_protocol_that_has_a_form_of_its_own(
    house: OpenGateway,
    engine: StartEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: type[BaseException] | None,
) -> None:
    monkeypatch.setattr(Odd, "fails", fails)
    monkeypatch.setattr(plugin_failures, "_limit", plugin_failures.RateLimit(1000))
    gateway = await opened(house, engine)
    for request in (
        gateway.get("/v1/odd", OPERATOR),
        gateway.get("/v1/odd/x", OPERATOR),
        gateway.get("/v1/odd/page"),
        gateway.get("/v1/odd/page", OPERATOR),
        gateway.get("/v1/messages/odd", OPERATOR),
        gateway.post(b"{", OPERATOR, path="/v1/odd"),
        gateway.post(path="/v1/odd"),
        gateway.post(path="/v1/odder/m:ask"),
        gateway.post(b"{", OPERATOR, path="/v1/odder/m:ask"),
        gateway.get("/v1/odder/m:ask"),
        gateway.get("/v1/odder/m:ask/x"),
    ):
        reply = await gateway.ask(request)
        told = msgspec.json.decode(reply.body)
        assert reply.status >= 400
        assert isinstance(told["error"]["message"] if fails else told["fault"], str)
    failures = [each for each in caplog.messages if each == "The protocol 'odd' failed to tell an error"]
    assert len(failures) == (1 if fails else 0)


async def test_a_protocol_that_exits_while_it_is_awaited(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exits() -> Translation:
        raise SystemExit

    monkeypatch.setattr(Odd, "translate", lambda self, request: exits())
    gateway = await opened(house, engine)
    reply = await gateway.ask(gateway.post(b"{}", OPERATOR, path="/v1/odd"))
    assert (reply.status, b"The protocol 'odd' failed" in reply.body) == (500, True)
