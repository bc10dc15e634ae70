"""A prompt that is too long for an engine goes to a fallback with a longer context."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from enginehouse.relay.answers.engine_error import is_too_long
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.waiting import settled

VLLM = (
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens in the messages, "
    "Please reduce the length of the messages."
)
LLAMA = "the request exceeds the available context size, try increasing it"
SGLANG = "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
ANTHROPIC = "prompt is too long: 210000 tokens > 200000 maximum"


def refusal(message: str, **fields: object) -> bytes:
    return msgspec.json.encode({"error": {"message": message, **fields}})


TOO_LONG = refusal("too many tokens", code="context_length_exceeded")


@pytest.mark.parametrize(
    "body",
    [
        TOO_LONG,
        refusal(VLLM, type="BadRequestError", code=400),
        refusal("no", type="exceed_context_size_error", n_ctx=4096),
        *(refusal(message) for message in (LLAMA, SGLANG, ANTHROPIC)),
        msgspec.json.encode({"object": "error", "message": VLLM}),
        msgspec.json.encode({"error": LLAMA}),
    ],
)
def test_engines_say_it_in_their_own_words(body: bytes) -> None:
    assert is_too_long(400, body)
    assert not is_too_long(500, body)
    assert not is_too_long(200, body)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", refusal("max_tokens is too long"), refusal("'context' must be a list"), b'{"error": 7}']
)
def test_other_refusals_are_not_taken_for_it(body: bytes) -> None:
    assert not is_too_long(400, body)


async def open_with(
    house: OpenGateway, engine: StartEngine, longer: int | None
) -> tuple[ServedGateway, ScriptedEngine, ScriptedEngine]:
    """A gateway whose engine of ``MODEL`` finds prompts too long, this engine, and the engine of its fallback."""
    short, other = await engine(), await engine()
    short.otherwise((short.answer(TOO_LONG, 400),))
    served = {"a": (short, MODEL, 100), "b": (other, "big", longer)}
    backends = {
        name: {"url": each.url, "models": {model: {"context_length": length}}}
        for name, (each, model, length) in served.items()
    }
    models = {"big": {"endpoints": ["/v1/chat/completions"]}}
    gateway = await house(backends=backends, models=models, routing={"fallbacks": {MODEL: ["big"]}})
    return gateway, short, other


async def test_the_fallback_with_a_longer_context_serves_it(house: OpenGateway, engine: StartEngine) -> None:
    gateway, _, other = await open_with(house, engine, 1000)
    reply = await gateway.ask()
    assert reply.status == 200
    assert (reply.header("x-enginehouse-backend"), reply.header("x-enginehouse-reason")) == ("b", "fallback")
    assert len(other.calls) == 1


async def test_the_fallback_serves_it_too_if_the_refusal_comes_in_pieces(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway, short, other = await open_with(house, engine, 1000)
    gate = asyncio.Event()
    head = b"HTTP/1.1 400 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(TOO_LONG)
    short.plays(head, TOO_LONG[:9], gate, TOO_LONG[9:])
    asking = asyncio.create_task(gateway.ask())
    await short.call()
    await settled(lambda: len(short.calls))
    gate.set()
    reply = await asking
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    assert len(other.calls) == 1


@pytest.mark.parametrize("longer", [100, None])
async def test_no_other_fallback_is_asked(house: OpenGateway, engine: StartEngine, longer: int | None) -> None:
    gateway, _, other = await open_with(house, engine, longer)
    reply = await gateway.ask()
    assert (reply.status, reply.body) == (400, TOO_LONG)
    assert other.calls == []
