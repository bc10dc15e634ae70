from __future__ import annotations

import pytest

from enginehouse.relay.heads import KnownHead

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nAccept: */*\r\n\r\n"
ALIKE = {
    "the same": HEAD % 3 + b"abc",
    "another body": HEAD % 3 + b"\r\n\r",
    "another length": HEAD % 12 + b"abcdefghijkl",
    "no body": HEAD % 0,
}
DIFFERENT = {
    "a byte before the length": HEAD.replace(b"Host: a", b"Host: b") % 3 + b"abc",
    "a byte behind the length": HEAD.replace(b"*/*", b"*/x") % 3 + b"abc",
    "a line less": HEAD.replace(b"Accept: */*\r\n", b"") % 3 + b"abc",
    "a line more": HEAD.replace(b"\r\n\r\n", b"\r\nX: y\r\n\r\n") % 3 + b"abc",
    "part of the body": HEAD % 4 + b"abc",
    "more than the body": HEAD % 2 + b"abc",
    "part of the head": (HEAD % 3)[:-1],
    "nothing behind the length": (HEAD % 3).partition(b"3")[0],
    "no digits": HEAD.replace(b"%d", b"") + b"abc",
    "leading zeros": HEAD.replace(b"%d", b"00%d") % 3 + b"abc",
    "a sign": HEAD.replace(b"%d", b"+%d") % 3 + b"abc",
    "a blank": HEAD.replace(b"%d", b"%d ") % 3 + b"abc",
    "another kind of digit": HEAD.replace(b"%d", "\u0663".encode()) + b"abc",
    "nothing": b"",
}
UNSIZED = {
    "chunks": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no body": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a length in the body": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nContent-Length: 0\r\n\r\n",
    "part of the body": HEAD % 4 + b"abc",
    "another request behind it": HEAD % 3 + b"abc" + HEAD % 3 + b"abc",
    "no end": b"\r\nContent-Length: 4",
}


@pytest.fixture
def known() -> KnownHead[str]:
    """Knows ``HEAD``."""
    head: KnownHead[str] = KnownHead(b"x-request-id")
    assert head.learn(HEAD % 5 + b"abcde")
    return head


@pytest.mark.parametrize("data", ALIKE.values(), ids=ALIKE)
def test_a_known_head_is_read_with_any_length(known: KnownHead[str], data: bytes) -> None:
    assert known.read(data) == data.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("count", [*range(1, 4)])
def test_lengths_around_powers_of_ten_are_known(known: KnownHead[str], count: int) -> None:
    for length in range(10**count - 3, 10**count + 3):
        assert known.read(HEAD % length + b"x" * length) == b"x" * length


@pytest.mark.parametrize("data", DIFFERENT.values(), ids=DIFFERENT)
def test_anything_else_is_left_to_the_parser(known: KnownHead[str], data: bytes) -> None:
    assert known.read(data) is None


@pytest.mark.parametrize("data", UNSIZED.values(), ids=UNSIZED)
def test_only_one_whole_message_framed_by_its_length_is_learned(data: bytes) -> None:
    head: KnownHead[str] = KnownHead()
    assert not head.learn(data)
    assert head.read(data) is None


def test_values_of_headers_that_vary_are_told(known: KnownHead[str]) -> None:
    head = HEAD.replace(b"Accept: */*", b"X-Request-Id: %s")
    assert known.learn(head % (3, b"abc") + b"abc")
    assert known.read(head % (10, b"d-e-f-1") + b"0123456789") == b"0123456789"
    assert (known.places, known.values) == ([1, 2], [b"10", b"d-e-f-1"])
    for value in (b"a b", b"", b"\xe9", b"a\r\nb: c", b"a" * 200):
        assert known.read(head % (3, value) + b"abc") is None


def test_a_head_that_comes_again_with_a_body_as_long_is_the_same(known: KnownHead[str]) -> None:
    for length, same in ((3, False), (3, True), (4, False), (3, False), (3, True)):
        assert known.read(HEAD % length + b"x" * length) == b"x" * length
        assert known.is_same is same
    assert known.read(HEAD.replace(b"*/*", b"*/x") % 3 + b"abc") is None
    assert known.learn(HEAD % 3 + b"abc")
    assert known.read(HEAD % 3 + b"abc") == b"abc"
    assert not known.is_same


def test_another_head_takes_the_place_of_a_known_one(known: KnownHead[str]) -> None:
    other = DIFFERENT["a byte before the length"]
    assert known.learn(other)
    assert (known.read(HEAD % 3 + b"abc"), known.read(other)) == (None, b"abc")


def test_where_heads_are_unique_few_are_learned() -> None:
    head: KnownHead[str] = KnownHead()
    learned = [
        head.learn(b"HTTP/1.1 200 OK\r\nX-Unique: %d\r\nContent-Length: 0\r\n\r\n" % number) for number in range(200)
    ]
    assert learned[:8] == [True] * 8
    assert sum(learned[8:]) == 6
