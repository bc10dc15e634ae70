"""Errors behind a translated protocol: clients get them in their own form, at once, and nothing after them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse_kit.protocols import Envelope, Protocol, ProtocolRequest, Translation
from tests.support.noted_records import NotedRecords
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

HELLO = [{"role": "user", "content": "hi"}]
ASKED: dict[str, dict[str, object]] = {
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
    "/v1/responses": {"input": "hi"},
    "/api/chat": {"messages": HELLO},
    "/api/generate": {"prompt": "hi"},
    "/api/embed": {"input": "hi"},
}
REFUSALS: dict[str, object] = {
    "vLLM": {"object": "error", "message": "No such thing", "type": "BadRequestError", "param": None, "code": 400},
    "vLLM now": {"error": {"message": "No such thing", "type": "BadRequestError", "param": None, "code": 400}},
    "llama.cpp": {"error": {"code": 400, "message": "No such thing", "type": "invalid_request_error"}},
    "TGI": {"error": "No such thing", "error_type": "validation"},
    "Ollama": {"error": "No such thing"},
    "FastAPI": {"detail": "No such thing"},
    "FastAPI's checks": {"detail": [{"loc": ["body", "x"], "msg": "No such thing", "type": "missing"}]},
    "LM Studio": {"error": {"message": "No such thing"}},
    "TensorRT-LLM": {"object": "error", "message": "No such thing", "type": "bad", "param": None, "code": 400},
    "LiteLLM": {"error": {"message": "No such thing", "type": None, "param": None, "code": "400"}},
    "a message that is none": {"error": {"message": {"text": "No such thing"}}},
    "a number": {"error": 5, "message": "No such thing"},
}
ODD = b'data: {"choices": [{"delta": {"content": {"not": "text"}}}]}\n\n'
GOOD = b'data: {"choices": [{"delta": {"content": "good"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


class Raises(Protocol):
    """A protocol that fails at everything but requests."""

    name = "raises"
    paths = ("/v1/messages",)

    def translate(self, request: ProtocolRequest) -> Translation:
        return RaisingTranslation(request.body)

    def error(self, status: int, envelope: Envelope) -> bytes:
        raise KeyError("param")


class RaisingTranslation(Translation):
    path = "/v1/chat/completions"

    def __init__(self, body: bytes) -> None:
        self.body = body

    def answer(self, answer: dict[str, Any]) -> bytes:
        raise ZeroDivisionError

    def event(self, event: dict[str, Any]) -> bytes:
        raise RecursionError

    def end(self) -> bytes:
        raise LookupError

    def error_event(self, status: int, envelope: Envelope) -> bytes:
        raise KeyError("code")


async def opened(house: OpenGateway, engine: StartEngine) -> tuple[ScriptedEngine, ServedGateway]:
    served = await engine()
    return served, await house(served, models={MODEL: {"endpoints": []}}, routing={"max_retries": 0})


async def asked(gateway: ServedGateway, path: str, *, stream: bool) -> RawResponse:
    return await gateway.ask(gateway.post({**ASKED[path], "stream": stream}, path=path))


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_reaches_the_client_in_its_form(
    house: OpenGateway, engine: StartEngine, path: str, refusal: object, stream: bool
) -> None:
    served, gateway = await opened(house, engine)
    served.says(msgspec.json.encode(refusal), 400)
    reply = await asked(gateway, path, stream=stream)
    assert reply.status == 400
    assert b"No such thing" in reply.body or refusal == REFUSALS["a number"]
    error = msgspec.json.decode(reply.body)["error"]
    if path == "/v1/responses":
        assert isinstance(error["message"], str)
        assert {"message", "type", "param", "code"} <= error.keys()
    elif path == "/v1/messages":
        assert (isinstance(error["message"], str), error["type"]) == (True, "invalid_request_error")
    else:
        assert isinstance(error, str)


@pytest.mark.parametrize("path", [path for path in ASKED if path != "/api/embed"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_the_engine_breaks_off_is_an_error_in_every_dialect(
    house: OpenGateway, engine: StartEngine, path: str, stream: bool
) -> None:
    served, gateway = await opened(house, engine)
    ended = {"index": 0, "delta": {}, "message": {"content": "Hi"}, "finish_reason": "abort"}
    if stream:
        served.streams(GOOD, b"data: %s\n\n" % msgspec.json.encode({"choices": [ended]}), DONE, served.END)
    else:
        served.says(msgspec.json.encode({"choices": [ended]}))
    reply = await asked(gateway, path, stream=stream)
    assert b"broke its" in reply.body
    assert b"finish_reason 'abort'" in reply.body
    assert (reply.status, reply.whole) == (200 if stream else 502, True)


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_protocol_that_raises_ends_its_request_at_once(
    house: OpenGateway, engine: StartEngine, status: int, stream: bool
) -> None:
    served, gateway = await opened(house, engine)
    protocols: Any = gateway.relay.context.protocols
    protocols["/v1/messages"] = Raises()
    if status == 200 and stream:
        served.streams(GOOD, DONE, served.END)
    else:
        served.says(b'{"choices": [], "error": null}' if status == 200 else b'{"error": {"message": "x"}}', status)
    reply = await asked(gateway, "/v1/messages", stream=stream)
    assert reply.whole
    assert b"error" in reply.body
    served.says(b'{"choices": []}')
    assert (await gateway.ask(gateway.post({"messages": HELLO}))).status == 200


async def test_a_protocol_that_translates_to_nothing_ends_its_request_at_once(
    house: OpenGateway, engine: StartEngine, caplog: pytest.LogCaptureFixture
) -> None:
    class Nothing(Raises):
        def translate(self, request: ProtocolRequest) -> Any:
            return None

    _, gateway = await opened(house, engine)
    protocols: Any = gateway.relay.context.protocols
    protocols["/v1/messages"] = Nothing()
    reply = await asked(gateway, "/v1/messages", stream=False)
    assert (reply.status, reply.code) == (500, "plugin_failed")
    assert "The protocol 'raises' failed" in caplog.text


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/api/chat", "/api/generate"])
@pytest.mark.parametrize("pieces", [1, 3])
async def test_nothing_follows_an_event_that_cannot_be_read(
    house: OpenGateway, engine: StartEngine, path: str, pieces: int
) -> None:
    served, gateway = await opened(house, engine)
    events = [GOOD, ODD, GOOD.replace(b"good", b"late") + DONE]
    served.streams(*(events if pieces > 1 else [b"".join(events)]), served.END)
    noted = NotedRecords(gateway)
    reply = await asked(gateway, path, stream=True)
    assert b"good" in reply.body
    assert b"late" not in reply.body
    lines = reply.body.strip().split(b"\n")
    assert b"error" in lines[-1]
    assert sum(b"cannot be read" in line for line in lines) == (2 if "responses" in path else 1)
    record = await noted.only()
    assert (record.status, record.code) == (502, "upstream_error")
