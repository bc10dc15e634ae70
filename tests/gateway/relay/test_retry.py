from __future__ import annotations

import asyncio
from time import perf_counter

import msgspec
import pytest

from enginehouse.relay.retries import AT_LEAST
from tests.support.scripted_engine import ScriptedEngine, StartEngine, chunk
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import event

MALFORMED = {
    "no status line": b"<html>\r\n\r\n",
    "a bad status": b"HTTP/1.1 2x0 OK\r\ncontent-length: 2\r\n\r\n{}",
    "a status below 100": b"HTTP/1.1 042 OK\r\ncontent-length: 2\r\n\r\n{}",
    "a status above 599": b"HTTP/1.1 777 OK\r\ncontent-length: 2\r\n\r\n{}",
    "a bad length": b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a bad chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n{}\r\n0\r\n\r\n",
    "a chunk too long": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
    "both framings": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "another coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two answers": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" * 2,
    "an upgrade": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "an upgrade to nothing": b"HTTP/1.1 101 Switching\r\n\r\n",
    "a header without a name": b"HTTP/1.1 200 OK\r\n: x\r\ncontent-length: 2\r\n\r\n{}",
    "a folded header": b"HTTP/1.1 200 OK\r\nx-a: b\r\n set-cookie: c\r\ncontent-length: 2\r\n\r\n{}",
    "a bare CR": b"HTTP/1.1 200 OK\r\nx-a: b\rset-cookie: c\r\ncontent-length: 2\r\n\r\n{}",
    "too much body": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}{}",
    "a huge header": b"HTTP/1.1 200 OK\r\nx-a: " + b"x" * (400 << 10),
    "a huge head": b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 20_000 + b"content-length: 2\r\n\r\n{}",
    "many informational answers": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 17 + b"HTTP/1.1 200 OK\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
}


async def test_an_unreachable_replica_is_replaced(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(await engine(there=False), served)
    reply = await gateway.ask(gateway.post(b'{"model": "m",\n"x": 1}'))
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")
    assert reply.header("x-enginehouse-reason") == "retry"
    assert served.calls[0].body == b'{"model": "m",\n"x": 1}'
    assert gateway.relay.context.counters.retries == {"a": 1}


@pytest.mark.parametrize("before", [[], [b"HTTP/1.1 200 OK\r\n"], [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"]])
@pytest.mark.parametrize("how", ["CLOSE", "RESET"])
async def test_a_replica_that_breaks_before_the_first_byte_is_replaced(
    house: OpenGateway, engine: StartEngine, before: list[bytes], how: str
) -> None:
    broken, served = await engine(), await engine()
    gateway = await house(broken, served)
    broken.plays(*before, getattr(broken, how))
    reply = await gateway.ask()
    assert (reply.status, reply.header("x-enginehouse-reason")) == (200, "retry")
    assert (len(broken.calls), len(served.calls)) == (1, 1)
    assert "'a'" in str(gateway.relay.context.fleet.backends()[0].last_error)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("whole", [True, False])
async def test_a_replica_that_refuses_is_replaced(
    house: OpenGateway, engine: StartEngine, status: int, whole: bool
) -> None:
    busy, served = await engine(), await engine()
    gateway = await house(busy, served)
    answer = busy.answer(b"{}", status)
    busy.plays(answer if whole else answer[:-1])
    reply = await gateway.ask()
    assert (reply.status, reply.header("x-enginehouse-reason")) == (200, "retry")
    if not whole:
        await busy.calls[0].closed.wait()
    assert gateway.pending() == {"a": 0, "b": 0}


@pytest.mark.parametrize("status", [400, 413, 422, 501])
async def test_an_answer_that_would_be_the_same_elsewhere_is_not_retried(
    house: OpenGateway, engine: StartEngine, status: int
) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served, other)
    served.says(b"{}", status)
    assert (await gateway.ask()).status == status
    assert other.calls == []


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_the_only_replicas_own_error_passes_through(house: OpenGateway, engine: StartEngine, status: int) -> None:
    served = await engine()
    gateway = await house(served)
    served.says(b'{"detail": "theirs"}', status, b"retry-after: 3")
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.header("retry-after")) == (status, b'{"detail": "theirs"}', "3")
    assert reply.header("x-enginehouse-reason") == "match"


async def test_the_last_replicas_own_error_passes_through(house: OpenGateway, engine: StartEngine) -> None:
    first, last = await engine(), await engine()
    gateway = await house(first, last)
    first.says(b'"first"', 500)
    last.says(b'"last"', 503)
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.header("x-enginehouse-backend")) == (503, b'"last"', "b")


@pytest.mark.parametrize(("most", "asked"), [(0, 1), (1, 2), (2, 3), (9, 4)])
async def test_no_more_retries_than_allowed_and_never_the_same_replica(
    house: OpenGateway, engine: StartEngine, most: int, asked: int
) -> None:
    engines = [await engine() for _ in range(4)]
    for each in engines:
        each.plays(each.RESET)
    gateway = await house(*engines, routing={"max_retries": most})
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert [len(each.calls) for each in engines] == [1] * asked + [0] * (4 - asked)
    assert set(gateway.pending().values()) == {0}


async def test_all_unreachable_is_an_upstream_error(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(there=False), await engine(there=False))
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert "cannot connect" in reply.error["message"]


async def test_an_impossible_host_is_an_upstream_error(house: OpenGateway) -> None:
    gateway = await house(backends={"a": {"url": "http://a..b:1", "models": ["m"]}})
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (502, "upstream_error")


async def test_a_retry_may_lead_to_a_fallback(house: OpenGateway, engine: StartEngine) -> None:
    broken, served = await engine(), await engine()
    gateway = await house(
        backends={
            "a": {"url": broken.url, "models": ["big"]},
            "b": {"url": served.url, "models": ["small"]},
        },
        routing={"fallbacks": {"big": ["small"]}},
    )
    broken.plays(broken.RESET)
    reply = await gateway.ask(gateway.post({"model": "big"}))
    assert (reply.status, reply.header("x-enginehouse-reason")) == (200, "fallback")
    assert served.calls[0].body == b'{"model":"small"}'


BROKEN_STREAMS = {
    "nothing": b"",
    "half an event": b'data: {"choices":',
    "an error": b'data: {"error": {"message": "out of memory"}}\n\n',
    "no JSON": b"data: {nonsense\n\n",
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("first", BROKEN_STREAMS.values(), ids=BROKEN_STREAMS)
async def test_a_stream_that_breaks_before_its_first_event_is_retried_under_the_other_head(
    house: OpenGateway, engine: StartEngine, path: str, first: bytes
) -> None:
    broken, served = await engine(), await engine()
    gateway = await house(broken, served)
    last = b"data: [DONE]\n\n" if path.endswith("completions") else b'data: {"type":"message_stop"}\n\n'
    broken.plays(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-from: a\r\n\r\n", first, broken.CLOSE)
    served.streams(event(), last, served.END)
    reply = await gateway.ask(gateway.post(path=path, stream=True))
    assert (reply.body, reply.whole) == (event() + last, True)
    assert (reply.header("x-enginehouse-backend"), reply.header("x-enginehouse-reason")) == ("b", "retry")
    assert reply.header("x-from") is None
    assert gateway.relay.context.counters.retries == {"a": 1}
    assert "'a'" in str(gateway.fleet.backends()[0].last_error)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"])
@pytest.mark.parametrize("first", BROKEN_STREAMS.values(), ids=BROKEN_STREAMS)
async def test_a_stream_that_no_replica_begins_is_a_plain_error(
    house: OpenGateway, engine: StartEngine, path: str, first: bytes
) -> None:
    engines = [await engine(), await engine()]
    gateway = await house(*engines)
    for each in engines:
        each.streams(*([first] if first else []), each.END)
    asked = {"input": "Hello"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "Hello"}]}
    reply = await gateway.ask(gateway.post({**asked, "max_tokens": 9}, path=path, stream=True))
    assert (reply.status, reply.header("content-type"), reply.whole) == (502, "application/json", True)
    assert (reply.header("x-enginehouse-backend"), reply.header("x-enginehouse-attempts")) == (None, "2")
    said = msgspec.json.decode(reply.body)["error"]
    assert "Backend 'b'" in (said if path == "/api/chat" else said["message"])


async def test_a_heartbeat_between_two_engines_has_the_head_of_neither(house: OpenGateway, engine: StartEngine) -> None:
    broken, served, gate = await engine(), await engine(), asyncio.Event()
    gateway = await house(broken, served, streams={"heartbeat": 15})
    broken.streams(broken.END)
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await served.call()
    gateway.pass_time(16)
    head = await client.head()
    assert (head.status, head.header("x-enginehouse-backend")) == (200, None)
    client.close()


async def test_nothing_is_retried_after_the_first_body_byte(house: OpenGateway, engine: StartEngine) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served, other)
    seen = asyncio.Event()
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", seen, served.RESET)
    client = await gateway.client()
    client.send(gateway.post())
    assert (await client.head()).status == 200
    seen.set()
    await client.rest()
    assert other.calls == []


async def test_a_kept_connection_that_has_gone_stale_is_replaced(
    house: OpenGateway, engine: StartEngine, slow_machine: None
) -> None:
    served = await engine()
    gateway = await house(served)
    await gateway.ask()
    served.plays(served.RESET)
    served.says(b'"fresh"')
    reply = await gateway.ask(gateway.post(b'{"model": "m", "x": 2}'))
    assert (reply.body, reply.header("x-enginehouse-reason")) == (b'"fresh"', "match")
    assert [call.body for call in served.calls[1:]] == [b'{"model": "m", "x": 2}'] * 2
    assert gateway.fleet.backends()[0].last_error is None


async def kept_connections(gateway: ServedGateway, served: ScriptedEngine, count: int) -> None:
    """Have ``gateway`` keep ``count`` idle connections to ``served``."""
    gate, before = asyncio.Event(), len(served.calls)
    for _ in range(count):
        served.plays(gate, served.answer())
    clients = [await gateway.client() for _ in range(count)]
    for client in clients:
        client.send(gateway.post())
    await served.call(before + count - 1)
    gate.set()
    assert [(await client.reply()).status for client in clients] == [200] * count


async def test_a_stale_connection_is_replaced_by_a_new_one(
    house: OpenGateway, engine: StartEngine, slow_machine: None
) -> None:
    served = await engine()
    gateway = await house(served)
    await kept_connections(gateway, served, 4)
    served.plays(served.CLOSE)
    assert (await gateway.ask()).status == 200
    assert len(served.connections) == 5
    assert gateway.relay.context.counters.stale == {"a": 1}
    assert gateway.relay.context.counters.retries == {}


@pytest.mark.parametrize("how", ["CLOSE", "RESET"])
async def test_an_engine_gets_a_request_twice_at_most(
    house: OpenGateway, engine: StartEngine, how: str, slow_machine: None
) -> None:
    served, other = await engine(), await engine()
    gateway = await house(served)
    await kept_connections(gateway, served, 4)
    served.otherwise((getattr(served, how),))
    before = len(served.calls)
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert len(served.calls) - before == 2
    assert other.calls == []


async def test_a_new_connection_that_breaks_is_not_stale(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(served.RESET)
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert len(served.calls) == 1


async def test_a_kept_connection_that_breaks_in_its_answer_is_not_stale(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    await gateway.ask()
    served.plays(b"HTTP/1.1 100 Continue\r\n\r\n", served.RESET)
    assert (await gateway.ask()).code == "upstream_error"
    assert len(served.calls) == 2


async def test_an_idle_connection_that_speaks_is_not_used(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    spoken = asyncio.Event()
    served.plays(served.answer(), spoken, served.answer(b"unasked"))
    await gateway.ask()
    spoken.set()
    await served.calls[0].closed.wait()
    assert (await gateway.ask()).body == b'{"ok": true}'
    assert len(served.connections) == 2


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_answer_is_an_upstream_error(house: OpenGateway, engine: StartEngine, answer: bytes) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(answer)
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert "'a'" in reply.error["message"]
    await served.calls[0].closed.wait()
    assert (await gateway.ask()).status == 200


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_answer_is_retried_elsewhere(house: OpenGateway, engine: StartEngine, answer: bytes) -> None:
    broken, served = await engine(), await engine()
    gateway = await house(broken, served)
    broken.plays(answer)
    reply = await gateway.ask()
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "b")


async def test_a_stream_that_becomes_malformed_ends_with_an_error_event(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    seen = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    served.plays(head + chunk(event()), seen, b"not a chunk\r\n")
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    assert await client.chunk() == event()
    seen.set()
    last = await client.chunk()
    assert last.startswith(b"event: error")
    assert b"upstream_error" in last
    assert await client.chunk() == b""


async def test_failures_of_live_requests_make_a_backend_unhealthy(house: OpenGateway, engine: StartEngine) -> None:
    broken, served = await engine(there=False), await engine()
    gateway = await house(broken, served, checks={"failures": 3})
    for _ in range(3):
        assert (await gateway.ask()).header("x-enginehouse-reason") == "retry"
    assert (await gateway.ask()).header("x-enginehouse-reason") == "match"


async def test_a_request_that_all_engines_answer_with_500_proves_nothing_against_them(
    house: OpenGateway, engine: StartEngine
) -> None:
    engines = [await engine(), await engine()]
    gateway = await house(*engines)
    for _ in range(4):
        for one in engines:
            one.says(b"{}", 500)
        assert (await gateway.ask()).status == 500
    assert {backend.health.value for backend in gateway.relay.context.fleet.backends()} == {"healthy"}


async def test_a_500_where_another_engine_serves_counts_against_a_backend(
    house: OpenGateway, engine: StartEngine
) -> None:
    broken, served = await engine(), await engine()
    gateway = await house(broken, served)
    for _ in range(3):
        broken.says(b"{}", 500)
        assert (await gateway.ask()).status == 200
    assert {backend.name: backend.health.value for backend in gateway.relay.context.fleet.backends()} == {
        "a": "unhealthy",
        "b": "healthy",
    }


async def test_refused_requests_allow_no_retries(house: OpenGateway, engine: StartEngine) -> None:
    engines = [await engine() for _ in range(2)]
    gateway = await house(*engines, routing={"retry_budget": 1.0})
    client = await gateway.client()
    for _ in range(8 * AT_LEAST):  # longer than it takes until they would be counted
        assert (await client.ask(gateway.post({"model": "unknown"}))).status == 404
    for _ in range(AT_LEAST):
        gateway.relay.context.budget.take(perf_counter())
    for each in engines:
        each.otherwise((each.answer(status=500),))
    await client.ask(gateway.post())
    assert dict(gateway.relay.context.counters.retries_refused) == {"retry": 1}
