"""Streams of a backend that an operator drains."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.gateway.relay.continuation.test_moves import BODY, VLLM, WHOLE, Streaming
from tests.gateway.relay.test_watching import watch
from tests.support.model_engine import StartModelEngine
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.waiting import until


async def drain(gateway: ServedGateway, name: str, verb: str = "drain") -> object:
    return msgspec.json.decode((await gateway.ask(gateway.get(f"/api/backends/{name}/{verb}", method="POST"))).body)


async def test_a_drained_backend_hands_its_streams_over(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM, rescheduling={"moves_at_once": 2})
    gateway.fleet.drain("b")
    streams = [await Streaming.begin(gateway, source, id=f"r{number}") for number in range(5)]
    gateway.fleet.undrain("b")
    assert gateway.pending() == {"a": 5, "b": 0}
    assert await drain(gateway, "a") == {"backend": "a", "draining": True, "live": 5}
    for each in streams:
        await each.rest()
        assert read_stream(each.wire).answer == WHOLE.answer
    assert [len(engine.calls) for engine in (source, destination)] == [5, 10]
    assert await drain(gateway, "a") == {"backend": "a", "draining": True, "live": 0}


async def test_what_cannot_be_moved_may_finish(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    stays = await Streaming.begin(gateway, source, logprobs=True)
    assert await drain(gateway, "a") == {"backend": "a", "draining": True, "live": 1}
    stays.gate.set()
    await stays.rest()
    assert read_stream(stays.wire).ended
    assert destination.calls == []


async def test_a_stream_moves_once_its_answer_has_begun(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    begins = asyncio.Event()
    source.gate = (0, begins)
    client = await gateway.client()
    client.send(gateway.post(BODY))
    await source.call()
    await drain(gateway, "a")
    begins.set()
    reply = await client.reply()
    assert read_stream(reply.body).answer == WHOLE.answer


async def test_an_undrained_backend_keeps_its_streams(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    destination.refuses = {"model"}
    stays = await Streaming.begin(gateway, source)
    await drain(gateway, "a")
    await destination.call()
    assert await drain(gateway, "a", "undrain") == {"backend": "a", "draining": False, "live": 1}
    stays.gate.set()
    await stays.rest()
    assert read_stream(stays.wire).answer == WHOLE.answer


async def test_streams_leave_a_replica_that_a_scheduler_wants_to_be_free(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    gateway.relay.drains.vacate("m@a")
    leaves = await Streaming.begin(gateway, source)
    gateway.relay.drains.vacate("m@a")
    gateway.relay.drains.vacate("m@a")
    await leaves.rest()
    assert read_stream(leaves.wire).answer == WHOLE.answer
    assert [len(engine.calls) for engine in (source, destination)] == [1, 2]
    assert gateway.fleet.snapshot.candidates("m")[0].draining is False


async def test_a_scheduler_wants_a_replica_to_be_free_for_a_while_only(
    house: OpenGateway, model_engine: StartModelEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose backend has the sign between models and backends in its name."""
    monkeypatch.setattr("enginehouse.relay.moves.drains._VACATING_S", 0.0)
    source = await model_engine()
    backends = {"east@1": {"url": source.url, "models": [MODEL], "driver": "vllm"}}
    gateway = await house(backends=backends)
    stays = await Streaming.begin(gateway, source)
    gateway.relay.drains.vacate("m@east@1")
    assert gateway.relay.drains._tasks
    await until(lambda: not gateway.relay.drains._tasks)
    stays.gate.set()
    await stays.rest()


async def test_nothing_is_kept_of_replicas_that_are_free(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    drains = gateway.relay.drains
    drains.vacate("gone@b")
    assert not drains._vacating
    leaves = await Streaming.begin(gateway, source)
    drains.vacate("m@a")
    await leaves.rest()
    await until(lambda: not drains._tasks)
    assert not drains._vacating


async def test_a_stream_moves_once_a_full_backend_has_room(house: OpenGateway, model_engine: StartModelEngine) -> None:
    source, destination = await model_engine(), await model_engine()
    backends = {"b": {"url": destination.url, "models": [MODEL], "driver": "vllm", "concurrency": 1}}
    gateway = await house(source, backends=backends, backend=VLLM)
    gateway.gateway.engines.remote.open()
    gateway.gateway.engines.queues.update(gateway.gateway.engines.remote.queues)
    gateway.fleet.drain("b")
    streams = [await Streaming.begin(gateway, source, id=f"r{number}") for number in range(2)]
    gateway.fleet.undrain("b")
    holds = asyncio.Event()
    destination.gate = (1, holds)
    await drain(gateway, "a")
    await gateway.until(lambda: gateway.pending() == {"a": 1, "b": 1})
    holds.set()
    for each in streams:
        await each.rest()
        assert read_stream(each.wire).answer == WHOLE.answer


async def test_a_drain_is_an_event(house: OpenGateway, model_engine: StartModelEngine) -> None:
    gateway = await house(await model_engine(), backend=VLLM)
    watcher = await watch(gateway)
    _, snapshot = await watcher.event()
    assert snapshot["backends"] == [{"backend": "a", "health": "healthy", "error": None, "draining": False}]
    for verb in ("drain", "drain", "undrain"):
        await drain(gateway, "a", verb)
    told = [await watcher.event() for _ in range(5)]
    assert [(facts["backend"], facts["draining"]) for name, facts in told if name == "backend_draining"] == [
        ("a", True),
        ("a", False),
    ]
    assert [facts["act"] for name, facts in told if name == "operated"] == [
        f"POST /api/backends/a/{verb}" for verb in ("drain", "drain", "undrain")
    ]
