"""Heads that a client repeats, but for the ``traceparent`` of each request."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enginehouse.relay.heads.headers import NOT_TO_ENGINE, again, learned, passing_lines
from tests.gateway.api.test_requests import check
from tests.support.fake_door import FakeDoor
from tests.support.h11_peer import read_requests
from tests.support.hypothesis_profiles import always_alike

profile = always_alike(150)

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\nX-A: b\r\n%s\r\n"


def trace(number: int) -> bytes:
    return b"00-%032x-%016x-01" % (number, number)


def request(body: bytes, before: bytes = b"", behind: bytes = b"") -> bytes:
    return HEAD % (before, len(body), behind) + body


def sent_traces(door: FakeDoor) -> list[list[bytes]]:
    """The ``traceparent`` headers of each request that reached the engine."""
    return [[value for name, value in one.headers if name == b"traceparent"] for one in door.engine.requests]


@pytest.mark.parametrize("name", [b"traceparent", b"Traceparent"])
@pytest.mark.parametrize("place", ["before", "behind"])
async def test_a_head_is_known_though_its_trace_differs(name: bytes, place: str) -> None:
    door = FakeDoor(asyncio.get_running_loop())
    bodies = [b"abc", b"defg", b"h" * 1000, b"", b"i"]
    for number, body in enumerate(bodies, 1):
        if number == 3:
            door.connection.parser = cast(Any, None)  # from here on it sees nothing
        door.send(request(body, **{place: b"%s: %s\r\n" % (name, trace(number))}))
        await door.settle()
    assert sent_traces(door) == [[trace(number)] for number in range(1, 6)]
    assert [one.body for one in door.engine.requests] == bodies
    assert {(b"x-a", b"b") in one.headers for one in door.engine.requests} == {True}


async def test_a_client_that_stops_tracing_sends_no_earlier_trace() -> None:
    door = FakeDoor(asyncio.get_running_loop())
    traced = [b"traceparent: %s\r\n" % trace(number) for number in (1, 2, 3)]
    for line in (*traced, b"", b"traceparent: \r\n", traced[0], b"", b"", b""):
        door.send(request(b"abc", line))
        await door.settle()
    assert sent_traces(door) == [[trace(1)], [trace(2)], [trace(3)], [], [b""], [trace(1)], [], [], []]


@pytest.mark.parametrize("place", ["before", "behind"])
async def test_no_part_of_a_body_passes_for_a_trace(place: str) -> None:
    door = FakeDoor(asyncio.get_running_loop())
    bodies = [b"f" * size for size in (99, 100, 101, 154, 155, 156, 0, 55, 1000)]
    for number, body in enumerate([b"f" * 99, *bodies], 1):
        sent = request(body, **{place: b"traceparent: %s\r\n" % trace(number)})
        door.send(sent.replace(b": 99\r", b": 0099\r"))
        await door.settle()
    assert [one.body for one in door.engine.requests[1:]] == bodies
    assert sent_traces(door) == [[trace(number)] for number in range(1, 11)]


names = st.sampled_from(
    [b"traceparent: ", b"Traceparent: ", b"TraceParent: ", b"traceparent:", b"traceparent:  ", b"x-traceparent: "]
)
values = st.one_of(
    st.integers(1, 3).map(trace),
    st.sampled_from(
        [
            *(b"", b" ", trace(1)[1:], trace(1) + b"0", trace(1).replace(b"00-", b"zz-"), b"f" * 55, b"-" * 55),
            trace(1).upper(),
            trace(1)[:-1] + b" ",
            b"\r\nContent-Length: 9" + b"0" * 36,
            b"0\r\n\r\n" + b"0" * 50,
            b"0\nX-B: " + b"0" * 48,
            b"0" * 53 + b"\r\n",
            b"0" * 54 + b"\r",
        ]
    ),
)


@profile
@given(names, st.booleans(), st.booleans(), st.lists(st.tuples(values, st.integers(0, 12)), min_size=3, max_size=6))
@example(b"traceparent: ", False, True, [(trace(1), 3), (trace(2), 3), (trace(3), 4)])
@example(b"traceparent: ", False, False, [(trace(1), 3), (trace(2), 3), (b"\r\nContent-Length: 9" + b"0" * 36, 3)])
def test_a_head_with_another_trace_is_read_as_h11_reads_it(
    door: FakeDoor, name: bytes, behind: bool, twice: bool, traces: list[tuple[bytes, int]]
) -> None:
    sent = []
    for value, size in traces:
        line = name + value + b"\r\n"
        first, second = (b"", line) if behind else (line, b"")
        sent.append(request(b"x" * size, first, second + (b"traceparent: %s\r\n" % trace(9) if twice else b"")))
    ends = [sum(map(len, sent[:count])) for count in range(len(sent))]
    stream = b"".join(sent)
    check(door, stream, read_requests(stream), ends, patient=False)


def test_only_the_one_header_of_that_name_is_replaced() -> None:
    pairs = [(b"x-traceparent", trace(1)), (b"traceparent", trace(1)), (b"content-length", b"3"), (b"x-b", b"c")]
    headers = learned(pairs)
    changed = again(headers, 12, trace(2))
    assert changed == [pairs[0], (b"traceparent", trace(2)), (b"content-length", b"12"), pairs[3]]
    expected = b"x-traceparent: %s\r\ntraceparent: %s\r\nx-b: c\r\n"
    assert passing_lines(headers, NOT_TO_ENGINE) == expected % (trace(1), trace(1))
    assert passing_lines(changed, NOT_TO_ENGINE) == expected % (trace(1), trace(2))
    without = b"x-traceparent: %s\r\nx-b: c\r\n" % trace(1)
    assert passing_lines(changed, NOT_TO_ENGINE | {b"traceparent"}) == without


def test_of_several_traces_none_is_replaced() -> None:
    pairs = [(b"traceparent", trace(1)), (b"traceparent", trace(2)), (b"content-length", b"3")]
    headers = learned(pairs)
    assert headers.traceparent == b""
    assert again(headers, 4, b"") == [*pairs[:2], (b"content-length", b"4")]


def test_a_trace_that_connection_names_does_not_pass() -> None:
    headers = learned(
        [(b"connection", b"traceparent"), (b"traceparent", trace(1)), (b"content-length", b"3"), (b"x-b", b"c")]
    )
    assert passing_lines(again(headers, 3, trace(2)), NOT_TO_ENGINE) == b"x-b: c\r\n"
