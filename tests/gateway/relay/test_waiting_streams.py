"""Observers that write to the clients of waiting streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from enginehouse.domain.plugin_id import PluginId
from enginehouse.records import WaitingStream
from enginehouse.telemetry.plugin_times import SampledCall
from tests.support.launched_engine import Launch
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import DONE, event

EVENTS = event(0) + event(1)


def observe(gateway: ServedGateway, *called: Callable[[Sequence[WaitingStream]], None]) -> None:
    calls = [SampledCall(PluginId("observer", "mine", "mine"), each) for each in called]
    gateway.relay.requests.waiting.wanted = calls


async def read_to_the_end(client: RawClient) -> bytes:
    """The rest of a chunked answer."""
    rest = b""
    while piece := await client.chunk():
        rest += piece
    return rest


async def test_an_observer_begins_a_stream_and_writes_no_more_once_its_engine_answers(
    house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    served = await engine()
    gateway = await house(served, models={"m": {}})
    managed = launched(gateway, "a")
    seen: list[WaitingStream] = []

    def write(streams: Sequence[WaitingStream]) -> None:
        seen.extend(streams)
        assert streams[0].write(b": soon\n\n")

    observe(gateway, write)
    client = await gateway.client()
    client.send(gateway.post({}, b"x-request-id: r-1", stream=True))
    await managed.starting()
    gateway.wait_for(1)
    [stream] = seen
    assert (stream.id, stream.path, stream.model) == ("r-1", "/v1/chat/completions", "m")
    assert (stream.phase.value, stream.position, stream.has_begun) == ("loading", 0, True)
    assert (await client.head()).status == 200
    assert await client.chunk() == b": soon\n\n"
    served.streams(EVENTS, DONE, served.END)
    await managed.gets_ready()
    assert (await read_to_the_end(client)).endswith(EVENTS + DONE)
    assert not stream.write(b": too late\n\n")
    await gateway.quiet()


async def test_an_observer_that_fails_or_writes_nonsense_harms_no_stream(
    house: OpenGateway, engine: StartEngine, launched: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    served = await engine()
    gateway = await house(served, models={"m": {}})
    managed = launched(gateway, "a")

    def fail(streams: Sequence[WaitingStream]) -> None:
        raise SystemExit

    def nonsense(streams: Sequence[WaitingStream]) -> None:
        streams[0].write("text")  # type: ignore[arg-type]

    def write(streams: Sequence[WaitingStream]) -> None:
        streams[0].write(b": soon\n\n")

    observe(gateway, fail, nonsense, write)
    client = await gateway.client()
    client.send(gateway.post({}, stream=True))
    await managed.starting()
    gateway.wait_for(1)
    assert (await client.head()).status == 200
    assert await client.chunk() == b": soon\n\n"
    assert "failed in fail" in caplog.text
    served.streams(EVENTS, DONE, served.END)
    await managed.gets_ready()
    assert (await read_to_the_end(client)).endswith(EVENTS + DONE)


@pytest.mark.parametrize("begins", [False, True])
async def test_nothing_is_written_to_a_stream_that_has_ended(
    begins: bool, house: OpenGateway, engine: StartEngine, launched: Launch
) -> None:
    gateway = await house(await engine(), models={"m": {}})
    managed = launched(gateway, "a")
    seen: list[WaitingStream] = []

    def keep(streams: Sequence[WaitingStream]) -> None:
        seen.extend(streams)
        if begins:
            streams[0].write(b": soon\n\n")

    observe(gateway, keep)
    client = await gateway.client()
    client.send(gateway.post({}, stream=True))
    await managed.starting()
    gateway.wait_for(1)
    [live] = gateway.relay.live
    live.cancel()
    assert not seen[0].write(b": too late\n\n")
    assert b"cancelled" in (await client.reply()).body
    assert (await client.ask(gateway.get("/health"))).status == 200, "the next answer on the connection is whole"
