"""Heads that a client repeats, but for values that differ with each request."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enginehouse.config.schema import KeySettings
from enginehouse.http.client_connection import VARYING, repeated_headers
from enginehouse.relay.heads import (
    NOT_TO_ENGINE,
    TRACED_NOT_TO_ENGINE,
    AlikeHeads,
    KnownHead,
    find_request_id,
    passing_lines,
    wants_cache_line,
    with_authorization,
)
from enginehouse.telemetry.trace_context import find_traceparent
from tests.gateway.http.test_requests import check
from tests.support.fake_client import FakeClient
from tests.support.h11_peer import read_requests
from tests.support.hypothesis_profiles import always_alike

profile = always_alike(150)

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\nX-A: b\r\n%s\r\n"


def trace(number: int) -> bytes:
    return b"00-%032x-%016x-01" % (number, number)


def request(body: bytes, before: bytes = b"", behind: bytes = b"") -> bytes:
    return HEAD % (before, len(body), behind) + body


def stop_parsing(server: FakeClient) -> None:
    """From here on, a request that the parser would have to read is an error."""
    server.connection._parser = cast(Any, None)


def sent_traces(server: FakeClient) -> list[list[bytes]]:
    """The ``traceparent`` headers of each request that reached the engine."""
    return [[value for name, value in one.headers if name == b"traceparent"] for one in server.engine.requests]


@pytest.fixture
async def client() -> FakeClient:
    return FakeClient(asyncio.get_running_loop())


@pytest.mark.parametrize("name", [b"traceparent", b"Traceparent", b"X-Request-Id"])
@pytest.mark.parametrize("place", ["before", "behind"])
async def test_a_head_is_known_though_values_differ(client: FakeClient, name: bytes, place: str) -> None:
    bodies = [b"abc", b"defg", b"h" * 1000, b"", b"i"]
    for number, body in enumerate(bodies, 1):
        if number == 2:
            stop_parsing(client)
        client.send(request(body, **{place: b"%s: %s\r\n" % (name, trace(number))}))
        await client.settle()
    assert [one.body for one in client.engine.requests] == bodies
    assert {(b"x-a", b"b") in one.headers for one in client.engine.requests} == {True}
    if name.lower() == b"traceparent":
        assert sent_traces(client) == [[trace(number)] for number in range(1, 6)]


async def test_a_client_that_stops_tracing_sends_no_earlier_trace(client: FakeClient) -> None:
    traced = [b"traceparent: %s\r\n" % trace(number) for number in (1, 2, 3)]
    for line in (*traced, b"", b"traceparent: \r\n", traced[0], b"", b"", b""):
        client.send(request(b"abc", line))
        await client.settle()
    assert sent_traces(client) == [[trace(1)], [trace(2)], [trace(3)], [], [b""], [trace(1)], [], [], []]


@pytest.mark.parametrize("place", ["before", "behind"])
async def test_no_part_of_a_body_passes_for_a_trace(client: FakeClient, place: str) -> None:
    bodies = [b"f" * size for size in (99, 100, 101, 154, 155, 156, 0, 55, 1000)]
    for number, body in enumerate([b"f" * 99, *bodies], 1):
        sent = request(body, **{place: b"traceparent: %s\r\n" % trace(number)})
        client.send(sent.replace(b": 99\r", b": 0099\r"))
        await client.settle()
    assert [one.body for one in client.engine.requests[1:]] == bodies
    assert sent_traces(client) == [[trace(number)] for number in range(1, 11)]


async def test_heads_that_never_come_again_are_not_learned_for_long(client: FakeClient) -> None:
    for number in range(40):
        client.send(request(b"abc", b"X-B: %d\r\n" % number))
        await client.settle()
    learned = client.connection._known._begin
    assert b"X-B: 7\r\n" in learned
    for number in (90, 90):
        client.send(request(b"abc", b"X-B: %d\r\n" % number))
        await client.settle()
    assert client.connection._known._begin == learned


async def test_long_heads_are_not_kept(client: FakeClient) -> None:
    for _ in range(3):
        client.send(request(b"abc", b"X-B: %s\r\n" % (b"b" * 9000)))
        await client.settle()
    assert len(client.engine.requests) == 3
    assert not client.connection._known._begin


# --- what is checked each time


async def refused(client: FakeClient, sent: bytes) -> bytes:
    """The first line of the answer to a head that is known, after which the connection is closed."""
    before = len(client.transport.written)
    stop_parsing(client)
    client.send(sent)
    await client.settle()
    assert client.transport.closing
    return client.transport.written[before:].partition(b"\r\n")[0]


async def test_a_key_that_a_reload_removes_opens_nothing(client: FakeClient) -> None:
    keyring = client.keyring
    keyring.configure([KeySettings(name="a", key="secret-a"), KeySettings(name="b", key="secret-b")])
    sent = request(b"abc", b"Authorization: Bearer secret-a\r\n")
    for _ in range(3):
        client.send(sent)
        await client.settle()
    keyring.configure([KeySettings(name="b", key="secret-b")])
    assert await refused(client, sent) == b"HTTP/1.1 401 Unauthorized"
    assert len(client.engine.requests) == 3


@pytest.mark.parametrize("limit", ["max_body", "body_memory"])
async def test_the_body_of_a_known_head_has_the_limits_of_any(client: FakeClient, limit: str) -> None:
    for _ in range(3):
        client.send(request(b"abc"))
        await client.settle()
    admission = client.connection.server.admission
    if limit == "max_body":
        admission.max_body = 2
    else:
        admission.body_memory.most = 2
    expected = {"max_body": b"HTTP/1.1 413", "body_memory": b"HTTP/1.1 503"}[limit]
    assert (await refused(client, request(b"abc"))).startswith(expected)
    assert admission.body_memory.held == 0


async def test_a_known_head_does_not_outlive_a_shutdown(client: FakeClient) -> None:
    for _ in range(3):
        client.send(request(b"abc"))
        await client.settle()
    client.connection.shutdown()
    assert await refused(client, request(b"abc")) == b"HTTP/1.1 200 OK"
    client.send(request(b"abc"))
    assert len(client.engine.requests) == 4


# --- what is found out once


fields = st.one_of(
    st.sampled_from(
        [
            *((b"accept", b"*/*"), (b"cookie", b"a"), (b"connection", b"traceparent"), (b"connection", b"x-b, accept")),
            *((b"x-enginehouse-explain", b"cache"), (b"x-enginehouse-explain", b"route")),
            *((b"x-b", b"c"), (b"x-traceparent", trace(1)), (b"traceparent", b"a b"), (b"x-request-id", b"a b")),
            *((b"authorization", b"Bearer a"), (b"x-request-id", b"\xe9"), (b"x-request-id", b"i" * 200)),
        ]
    ),
    st.tuples(
        st.sampled_from([b"traceparent", b"x-request-id"]),
        st.sampled_from([trace(1), trace(2), b"a", trace(3) + b".more"]),
    ),
)


def wire(headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"POST /a HTTP/1.1\r\n%s\r\n" % b"".join([b"%s: %s\r\n" % line for line in headers])


@profile
@given(st.lists(fields, max_size=5), st.lists(st.tuples(st.integers(3, 9), st.integers(0, 20)), min_size=1, max_size=3))
def test_what_is_known_of_headers_is_what_they_say(
    more: list[tuple[bytes, bytes]], later: list[tuple[int, int]]
) -> None:
    first = [(b"host", b"a"), *more, (b"content-length", b"0")]
    names = [name for name, _ in first]
    known: KnownHead[AlikeHeads] = KnownHead(*VARYING)
    assert known.learn(wire(first))
    known.meaning = AlikeHeads(b"/a", first)
    for number, size in later:
        headers = first.copy()
        headers[-1] = (b"content-length", b"%d" % size)
        for place, (name, value) in enumerate(first):
            if name in VARYING and names.count(name) == 1 and value in (trace(1), b"a"):
                headers[place] = (name, trace(number))
        assert known.read(wire(headers) + b"x" * size) == b"x" * size
        found = repeated_headers(known)
        assert found == headers
        assert found.request_id == find_request_id(headers)
        assert found.traceparent == find_traceparent(headers)
        assert wants_cache_line(found) is wants_cache_line(headers)
        for withheld in (NOT_TO_ENGINE, TRACED_NOT_TO_ENGINE, with_authorization(NOT_TO_ENGINE)):
            assert passing_lines(found, withheld) == passing_lines(headers, withheld)


# --- against another parser, and against heads that are not known

names = st.sampled_from(
    [
        *(b"traceparent: ", b"Traceparent: ", b"TraceParent: ", b"traceparent:", b"traceparent:  ", b"x-traceparent: "),
        *(b"X-Request-ID: ", b"x-request-id :"),
    ]
)
values = st.one_of(
    st.integers(1, 3).map(trace),
    st.sampled_from(
        [
            *(b"", b" ", trace(1)[1:], trace(1) + b"0", trace(1).replace(b"00-", b"zz-"), b"f" * 55, b"-" * 55),
            *(b"f" * 127, b"f" * 128, b"f" * 129, b"f\0f", b"f\x7f", b"\xff", b"\xe9" * 55),
            trace(1).upper(),
            trace(1)[:-1] + b" ",
            b"\r\nContent-Length: 9" + b"0" * 36,
            b"0\r\n\r\n" + b"0" * 50,
            b"0\nX-B: " + b"0" * 48,
            b"0\r\nTransfer-Encoding: chunked",
            b"0\r\nHost: b",
            b"0" * 53 + b"\r\n",
            b"0" * 54 + b"\r",
        ]
    ),
)
sized = st.lists(st.tuples(values, st.integers(0, 12)), min_size=3, max_size=6)


@profile
@given(names, st.booleans(), st.booleans(), sized, st.lists(st.integers(0, 1000), max_size=3))
@example(b"traceparent: ", False, True, [(trace(1), 3), (trace(2), 3), (trace(3), 4)], [])
@example(b"traceparent: ", False, False, [(trace(1), 3), (trace(2), 3), (b"\r\nContent-Length: 9" + b"0" * 36, 3)], [])
@example(b"traceparent: ", False, False, [(trace(1), 3), (trace(2), 3), (trace(3), 4)], [-2])
def test_a_head_with_another_value_is_read_as_h11_reads_it(
    server: FakeClient, name: bytes, behind: bool, twice: bool, sent: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    requests = []
    for value, size in sent:
        line = name + value + b"\r\n"
        first, second = (b"", line) if behind else (line, b"")
        requests.append(request(b"x" * size, first, second + (b"traceparent: %s\r\n" % trace(9) if twice else b"")))
    ends = [sum(map(len, requests[:count])) for count in range(len(requests))]
    stream = b"".join(requests)
    check(server, stream, read_requests(stream), [*ends, *cuts], patient=False)


lines = st.sampled_from(
    [
        *(b"Accept: */*", b"Origin: http://a", b"Connection: keep-alive", b"Connection: traceparent", b"Cookie: a"),
        *(
            b"Connection: close",
            b"Expect: 100-continue",
            b"Upgrade: h2c",
            b"Upgrade: websocket",
            b"Connection: upgrade",
        ),
        *(b"Transfer-Encoding: chunked", b"Host: b", b"Content-Length: 3", b"content-length: 3", b"X-B: ", b"X-B:c "),
        *(b"traceparent: " + trace(1), b"traceparent: " + trace(2), b"X-Request-Id: a", b"x-request-id: b"),
        *(b" folded", b"X-B:\tc\t", b"X-C: \xff", b"X-D: a\0b", b"X-E : f", b":", b"traceparent"),
    ]
)
heads = st.tuples(
    st.sampled_from([b"POST /v1/completions HTTP/1.1", b"POST /v1/chat/completions HTTP/1.1", b"GET /next HTTP/1.1"]),
    st.lists(lines, max_size=4),
    st.sampled_from([b"", b"abc", b"abcdefghijkl"]),
)


EXPECTANT = (b"POST /v1/completions HTTP/1.1", [b"Expect: 100-continue"], b"abc")


@profile
@given(heads, st.lists(heads, max_size=3), st.lists(st.integers(0, 12), max_size=4))
@example(EXPECTANT, [], [])
def test_a_known_head_is_read_as_an_unknown_one(
    server: FakeClient,
    often: tuple[bytes, list[bytes], bytes],
    others: list[tuple[bytes, list[bytes], bytes]],
    order: list[int],
) -> None:
    kinds = [often, *others]
    sent = []
    for first, more, body in [often, often, *(kinds[place % len(kinds)] for place in order), often]:
        head = b"\r\n".join([first, b"Host: a", *more, b"Content-Length: %d" % len(body)])
        sent.append(head + b"\r\n\r\n" + body)
    passed, answers, closed = [], b"", False
    for each in sent:
        alone = server.passes(each)
        passed += alone.requests
        answers += alone.answer
        closed = alone.closed
        if closed:
            break
    together = server.passes(*sent)
    assert (together.requests, together.answer, together.closed) == (passed, answers, closed)
