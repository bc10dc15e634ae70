"""The client for whole requests, which probes use."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from enginehouse.config.schema import BackendSettings, TimeoutSettings
from enginehouse.domain.errors import UpstreamError, UpstreamTimeout
from enginehouse.relay.upstream.client import Client, FollowedEvents
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from tests.support.scripted_engine import Cut, ScriptedEngine, StartEngine, Step
from tests.support.waiting import within


class MakeClient(Protocol):
    """Makes clients of a scripted engine."""

    def __call__(self, served: ScriptedEngine, prefix: str = "", timeout: float = 5.0, api_key: str = "") -> Client: ...


@pytest.fixture
async def client() -> AsyncIterator[MakeClient]:
    upstreams: list[Upstream] = []

    def make(served: ScriptedEngine, prefix: str = "", timeout: float = 5.0, api_key: str = "") -> Client:
        settings = BackendSettings(url=served.url + prefix, api_key=api_key)
        upstreams.append(Upstream("a", settings, TimeoutSettings(), Outside()))
        return Client(upstreams[-1], timeout)

    yield make
    for upstream in upstreams:
        upstream.pool.close()


async def test_a_request_is_answered_whole(engine: StartEngine, client: MakeClient) -> None:
    served = await engine()
    served.plays(b"HTTP/1.1 201 X\r\nx-a: b\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", b"1\r\nc\r\n0\r\n\r\n")
    response = await client(served, "/base", api_key="secret").request("POST", "/v1/x", b"{}")
    assert (response.status, response.headers, response.body) == (201, [(b"x-a", b"b")], b"abc")
    [call] = served.calls
    assert (call.request_line, call.body) == (b"POST /base/v1/x HTTP/1.1", b"{}")
    assert call.header(b"authorization") == [b"Bearer secret"]


async def test_connections_are_kept_and_stale_ones_replaced(
    engine: StartEngine, client: MakeClient, slow_machine: None
) -> None:
    served = await engine()
    asking = client(served)
    for _ in range(2):
        await asking.request("GET", "/health")
    assert len(served.connections) == 1
    served.plays(served.RESET)
    assert (await asking.request("GET", "/health")).status == 200
    assert len(served.connections) == 2


async def test_a_request_is_sent_twice_at_most(engine: StartEngine, client: MakeClient, slow_machine: None) -> None:
    served = await engine()
    asking = client(served)
    await asyncio.gather(*(asking.request("GET", "/health") for _ in range(4)))
    served.otherwise((served.RESET,))
    with pytest.raises(UpstreamError):
        await asking.request("POST", "/load")
    assert len(served.calls) == 6


@pytest.mark.parametrize(
    "script", [(b"nonsense\r\n\r\n",), (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", Cut.RESET)]
)
async def test_a_failure_is_an_upstream_error(
    engine: StartEngine, client: MakeClient, script: tuple[Step, ...]
) -> None:
    served = await engine()
    served.plays(*script)
    with pytest.raises(UpstreamError):
        await client(served).request("GET", "/health")
    with pytest.raises(UpstreamError, match="cannot connect"):
        await client(await engine(there=False)).request("GET", "/health")


async def test_an_engine_that_takes_too_long_is_hung_up_on(engine: StartEngine, client: MakeClient) -> None:
    served = await engine()
    served.plays(asyncio.Event())
    with pytest.raises(UpstreamTimeout, match=r"0\.05 s"):
        await client(served, timeout=0.05).request("GET", "/health")
    await served.calls[0].closed.wait()


async def test_an_endless_answer_is_cut_off(engine: StartEngine, client: MakeClient) -> None:
    served = await engine()
    piece = b"x" * (1 << 20)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (64 << 20), *[piece] * 64)
    with pytest.raises(UpstreamError, match="too large"):
        await client(served).request("GET", "/health")
    await served.calls[0].closed.wait()


async def follow(client: Client) -> tuple[list[bytes], str]:
    """The events that the client gets, and why they end."""
    events: list[bytes] = []
    with pytest.raises((UpstreamError, UpstreamTimeout)) as raised:
        await client.follow("/events", events.append)
    return events, str(raised.value)


async def test_events_are_followed_until_they_end(engine: StartEngine, client: MakeClient) -> None:
    served = await engine()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    served.plays(head + b": hello\n\nevent: x\nda", b"ta: 1\n\ndata: 2\r\ndata: 3\r\n\r\n", Cut.CLOSE)
    assert await follow(client(served)) == ([b"1", b"2\n3"], "its events have ended")


async def test_who_follows_events_gets_the_exception_of_their_own_callback(
    engine: StartEngine, client: MakeClient
) -> None:
    served = await engine()
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: x\n\ndata: 1\n\n", asyncio.Event())
    with pytest.raises(ValueError, match="invalid literal"):
        await client(served).follow("/events", int)  # type: ignore[arg-type]
    await served.calls[0].closed.wait()


async def test_a_connection_that_has_no_events_is_left_to_who_takes_it_next(engine: StartEngine) -> None:
    served = await engine()
    served.plays(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}")
    upstream = Upstream("a", BackendSettings(url=served.url), TimeoutSettings(), Outside())
    following = asyncio.create_task(follow(Client(upstream, 5.0)))
    while (taken := upstream.pool.take()) is None:  # noqa: ASYNC110 - the very next turn counts
        await asyncio.sleep(0)
    assert not following.done(), "it has not heard yet that there are no events"
    later = FollowedEvents(lambda _: None)
    taken.send(later, b"GET /later HTTP/1.1\r\n\r\n")
    await following
    with pytest.raises(UpstreamError, match="status 200"):
        await within(later.ended)
    upstream.pool.close()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ((b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}",), "no events"),
        ((b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",), "no events"),
        ((b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: " + b"x" * 1_100_000,), "more than"),
        ((b"nonsense\r\n\r\n",), "malformed"),
        ((Cut.CLOSE,), "closed"),
        ((asyncio.Event(),), "no events from a in 0.1 s"),
    ],
    ids=["absent", "json", "too large", "nonsense", "closed", "silent"],
)
async def test_an_engine_without_events_is_not_followed(
    engine: StartEngine, client: MakeClient, script: tuple[Step, ...], why: str
) -> None:
    served = await engine()
    served.plays(*script)
    events, reason = await follow(client(served, timeout=0.1))
    assert events == []
    assert why in reason


async def test_a_question_that_is_given_up_before_it_begins_leaves_no_warning(
    engine: StartEngine, client: MakeClient, recwarn: pytest.WarningsRecorder
) -> None:
    asking = asyncio.ensure_future(client(await engine()).request("GET", "/health"))
    asking.cancel()
    await asyncio.wait({asking})
    del asking
    gc.collect()
    assert not recwarn.list
