from __future__ import annotations

import pytest

from enginehouse.relay.heads.known_head import KnownHead

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
    "a sign": HEAD.replace(b"%d", b"+%d") % 3 + b"abc",
    "a blank": HEAD.replace(b"%d", b"%d ") % 3 + b"abc",
    "another kind of digit": HEAD.replace(b"%d", "\u0663".encode()) + b"abc",
    "a length beyond bounds": HEAD.replace(b"%d", b"0" * 20 + b"%d") % 3 + b"abc",
    "leading zeros": HEAD.replace(b"%d", b"00%d") % 3 + b"abc",
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
    head: KnownHead[str] = KnownHead()
    assert not head.see(HEAD % 5 + b"abcde")
    assert head.see(HEAD % 3 + b"abc")
    head.learn("meaning")
    return head


@pytest.mark.parametrize("data", ALIKE.values(), ids=ALIKE)
def test_a_known_head_is_read_with_any_length(known: KnownHead[str], data: bytes) -> None:
    assert known.read(data) == ("meaning", data.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("count", [*range(1, 4)])
def test_lengths_around_powers_of_ten_are_known(known: KnownHead[str], count: int) -> None:
    for length in range(10**count - 3, 10**count + 3):
        assert known.read(HEAD % length + b"x" * length) == ("meaning", b"x" * length)


@pytest.mark.parametrize("data", DIFFERENT.values(), ids=DIFFERENT)
def test_anything_else_is_left_to_the_parser(known: KnownHead[str], data: bytes) -> None:
    assert known.read(data) is None


@pytest.mark.parametrize("data", UNSIZED.values(), ids=UNSIZED)
def test_only_one_whole_message_framed_by_its_length_can_come_again(data: bytes) -> None:
    head: KnownHead[str] = KnownHead()
    assert [head.see(data) for _ in range(3)] == [False] * 3


def test_nothing_is_known_before_it_came_twice_in_a_row() -> None:
    head: KnownHead[str] = KnownHead()
    other = DIFFERENT["a byte before the length"]
    assert [head.see(data) for data in (HEAD % 3 + b"abc", other, HEAD % 3 + b"abc")] == [False] * 3
    assert head.read(HEAD % 3 + b"abc") is None


def test_another_head_makes_a_known_one_unknown(known: KnownHead[str]) -> None:
    known.see(DIFFERENT["a byte before the length"])
    assert known.read(HEAD % 3 + b"abc") is None


def test_where_heads_are_unique_few_are_looked_at() -> None:
    head: KnownHead[str] = KnownHead()
    for number in range(8):
        assert not head.see(b"X-Unique: %d\r\n%s" % (number, HEAD % 3 + b"abc"))
    repeats = [head.see(HEAD % 3 + b"abc") for _ in range(100)]
    assert repeats.index(True) == 63  # after a pause of 62, two that are equal suffice
    assert all(repeats[63:])
