"""Streams that operators move to another engine."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from enginehouse.domain.errors import CannotContinue, NotFound
from enginehouse.domain.replica import ReplicaState
from tests.support.launched_engine import Launch
from tests.support.model_engine import Break, ModelEngine, StartModelEngine
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import END, Cut
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.streaming_model import stream

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 40}
WHOLE = read_stream(b"".join(stream(CHAT, msgspec.json.encode(BODY))))
VLLM = {"driver": "vllm"}


class Streaming:
    """A stream of engine ``a``, which waits after some events until ``gate`` is set."""

    def __init__(self, gateway: ServedGateway, client: RawClient, gate: asyncio.Event) -> None:
        self.gateway = gateway
        self.client = client
        self.gate = gate
        self.wire = b""

    @classmethod
    async def begin(
        cls,
        gateway: ServedGateway,
        source: ModelEngine,
        events: int = 6,
        id: str = "r1",
        query: str = "",
        key: str = "",
        **more: Any,
    ) -> Streaming:
        source.gate = (events, asyncio.Event())
        client = await gateway.client()
        path = f"/v1/chat/completions{query}"
        lines = [f"authorization: Bearer {key}".encode()] if key else []
        client.send(gateway.post(BODY | more, f"x-request-id: {id}".encode(), *lines, path=path))
        await client.head()
        made = cls(gateway, client, source.gate[1])
        while made.wire.count(b"data: ") < events:
            made.wire += await client.chunk()
        return made

    async def rest(self) -> None:
        while not self.wire.endswith(b"[DONE]\n\n"):
            piece = await self.client.chunk()
            assert piece, self.wire
            self.wire += piece


async def test_a_stream_moves_while_its_client_reads(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    streaming = await Streaming.begin(gateway, source)
    moved = await gateway.relay.move("r1", "b")
    assert (moved.id, moved.source, moved.destination) == ("r1", "a", "b")
    assert moved.gap_ms >= 0
    await (await source.call()).closed.wait()
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer
    ahead, rest = destination.asked(0), destination.asked(1)
    assert (ahead["max_tokens"], ahead["stream"]) == (1, False)
    assert ahead["prompt"] == rest["prompt"]
    assert dict(gateway.relay.context.counters.continuations) == {("b", "moved", "tokens"): 1}


async def test_a_stream_moves_there_and_back(house: OpenGateway, model_engine: StartModelEngine) -> None:
    one, two = await model_engine(), await model_engine()
    gateway = await house(one, two, backend=VLLM)
    streaming = await Streaming.begin(gateway, one, events=3)
    for number in range(6):
        here, there, name = (one, two, "b") if number % 2 == 0 else (two, one, "a")
        there.gate = (3, asyncio.Event())
        assert (await gateway.relay.move("r1", name)).destination == name
        [live] = gateway.relay.live
        assert (live.moves, live.why_not_movable, gateway.pending()[name]) == (number + 1, None, 1)
        assert sum(gateway.pending().values()) == 1
        assert here.calls
    assert there.gate is not None
    there.gate[1].set()
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer
    await gateway.quiet()


async def test_a_move_that_fails_goes_on_at_its_source(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM, rescheduling={"migrate_timeout": 0.2})
    streaming = await Streaming.begin(gateway, source)
    for step in (Cut.CLOSE, Cut.RESET, asyncio.Event(), b"data: nonsense\n\n", END, 503):
        destination.breaks = [] if isinstance(step, int) else [Break(0, step)]
        if isinstance(step, int):
            destination.scripts = [(destination.answer(b"{}"),), (destination.answer(b"{}", step),)]
        with pytest.raises(CannotContinue, match="answered 503" if step == 503 else None):
            await gateway.relay.move("r1", "b")
        [live] = gateway.relay.live
        assert (live.moves, live.route and live.route.chosen.backend) == (0, "a")
    assert gateway.pending() == {"a": 1, "b": 0}
    streaming.gate.set()
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer


async def test_a_client_whose_stream_is_held_for_a_move_is_not_slow(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM, timeouts={"client": 1})
    streaming = await Streaming.begin(gateway, source)
    goes_on = asyncio.Event()
    destination.scripts = [(destination.answer(b"{}"),)]
    destination.gate = (0, goes_on)
    moving = asyncio.ensure_future(gateway.relay.move("r1", "b"))
    await gateway.until(lambda: len(destination.calls) == 2)
    gateway.pass_time(5)
    goes_on.set()
    assert (await moving).destination == "b"
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer


async def test_a_move_is_refused_before_anything_is_cut(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    others = {"c": {"url": destination.url, "models": ["another"], "driver": "vllm"}}
    gateway = await house(source, destination, backend=VLLM, backends=others)
    streaming = await Streaming.begin(gateway, source)
    for name, why in (("a", "already"), ("c", "does not serve")):
        with pytest.raises(CannotContinue, match=why):
            await gateway.relay.move("r1", name)
    with pytest.raises(NotFound, match="no backend"):
        await gateway.relay.move("r1", "nowhere")
    with pytest.raises(NotFound, match="no live request"):
        await gateway.relay.move("r2", "b")
    gateway.fleet.drain("b")
    with pytest.raises(CannotContinue, match="drained"):
        await gateway.relay.move("r1", "b")
    gateway.fleet.undrain("b")
    for _ in range(3):
        gateway.fleet.failed("b", "gone")
    with pytest.raises(CannotContinue, match="not ready"):
        await gateway.relay.move("r1", "b")
    assert destination.calls == []
    streaming.gate.set()
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer


@pytest.mark.parametrize(
    ("more", "why"),
    [({"n": 2}, "'n'"), ({"logprobs": True}, "'logprobs'"), ({"response_format": {"type": "json_object"}}, "grammar")],
)
async def test_a_request_that_stays_says_why(
    house: OpenGateway, model_engine: StartModelEngine, more: dict[str, Any], why: str
) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    streaming = await Streaming.begin(gateway, source, **more)
    [live] = gateway.relay.live
    assert why in str(live.why_not_movable)
    with pytest.raises(CannotContinue, match=why):
        await gateway.relay.move("r1", "b")
    streaming.gate.set()
    await streaming.rest()


async def test_a_destination_without_room_is_not_asked(
    house: OpenGateway, model_engine: StartModelEngine, launched: Launch
) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    managed = launched(gateway, "b", concurrency=1)
    managed.state = ReplicaState.READY
    streaming = await Streaming.begin(gateway, source)
    destination.gate = (2, asyncio.Event())
    gateway.fleet.drain("a")
    other = await gateway.client()
    other.send(gateway.post(BODY))
    await destination.call()
    with pytest.raises(CannotContinue, match="full"):
        await gateway.relay.move("r1", "b")
    assert list(managed.queue.waiting()) == []
    destination.gate[1].set()
    assert (await other.reply()).whole
    assert (await gateway.relay.move("r1", "b")).destination == "b"
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer
    await gateway.quiet()


async def test_a_client_that_leaves_during_a_move_frees_both_engines(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    streaming = await Streaming.begin(gateway, source)
    destination.gate = (0, asyncio.Event())
    moving = asyncio.ensure_future(gateway.relay.move("r1", "b"))
    call = await destination.call(1)
    streaming.client.reset()
    with pytest.raises(CannotContinue, match="has ended"):
        await moving
    await call.closed.wait()


async def test_a_source_that_breaks_during_a_move_is_replaced(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    streaming = await Streaming.begin(gateway, source)
    moving = asyncio.ensure_future(gateway.relay.move("r1", "b"))
    await destination.call()
    source.calls[0].connection.transport.abort()
    await streaming.rest()
    await asyncio.wait([moving])
    assert read_stream(streaming.wire).answer == WHOLE.answer
    assert moving.exception() is None or isinstance(moving.exception(), CannotContinue)


async def test_a_moved_stream_keeps_its_caller(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    backend = {**VLLM, "api_key": "secret-of-front", "pass_caller": True}
    keys = [{"name": "ann", "key": "secret-of-ann", "priority": 3}]
    gateway = await house(source, destination, backend=backend, auth={"keys": keys})
    gateway.fleet.drain("b")
    streaming = await Streaming.begin(gateway, source, key="secret-of-ann")
    gateway.fleet.undrain("b")
    await gateway.relay.move("r1", "b")
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer
    asked = [call for call in destination.calls if call.request_line.startswith(b"POST")]
    assert [call.header(b"x-enginehouse-caller") for call in asked] == [[], [b"ann"]], "it reads ahead for the gateway"
