"""Chunks of an engine's answer that arrive alone, which the parser need not see."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enginehouse.relay.events.sse import content_of, framed
from tests.support.fake_upstream import hear
from tests.support.hypothesis_profiles import always_alike

profile = always_alike(300)
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n"
FIRST = HEAD + framed(b"first")
"""The parser must complete a chunk before others may pass by it."""
LAST = b"0\r\n\r\n"
SIZES = [1, 9, 10, 15, 16, 17, 255, 256, 1017, 1023, 1024, 70_000]
USUAL = b"%x\r\n%s\r\n"
SPELLINGS = [b"%X\r\n%s\r\n", b"0%x\r\n%s\r\n", b"%x;a=b\r\n%s\r\n"]
BAD = [
    b"+%x\r\n%s\r\n",
    b"0x%x\r\n%s\r\n",
    b" %x\r\n%s\r\n",
    b"%x\n%s\r\n",
    b"%x\r\n%s\n\r",
    b"%x\r\n%sa\r\n",
    b"1%x\r\n%s\r\n",
]


@pytest.mark.parametrize("size", SIZES)
def test_a_chunk_is_framed(size: int) -> None:
    content = b"\n" * size
    assert framed(content) == USUAL % (size, content)
    assert content_of(framed(content)) == (content if size < 1024 else b"")


@pytest.mark.parametrize("spelling", [*SPELLINGS, *BAD])
def test_what_is_spelled_otherwise_is_left_to_the_parser(spelling: bytes) -> None:
    for size in range(1, 1100):
        content = b"a" * size
        data = spelling % (size, content)
        assert data == framed(content) or not content_of(data)


@pytest.mark.parametrize("data", [b"", b"\r", b"\r\n", b"0\r\n\r\n", b"1\r\na", b"1\r\na\r\n1\r\na\r\n", b"00\r\n\r\n"])
def test_what_is_not_one_chunk_is_left_to_the_parser(data: bytes) -> None:
    assert not content_of(data)


contents = st.one_of(
    st.sampled_from([b"\r\n", b"data: {}\n\n", LAST, framed(b"a"), b"a\r\n1\r\nb", b"\r\n0\r\n\r\n"]),
    st.sampled_from(SIZES[:-1]).map(lambda size: b"\r\n" * (size // 2) + b"a" * (size % 2)),
)
chunks = st.builds(
    lambda spelling, content: spelling % (len(content), content),
    st.sampled_from([USUAL] * 8 + SPELLINGS + BAD[:1]),
    contents,
)


@st.composite
def arrivals(draw: st.DrawFn) -> list[bytes]:
    """An answer in pieces: most of them chunks, some joined with the next one or cut in two."""
    last = draw(st.sampled_from([LAST, LAST, b"0\r\nx-a: b\r\n\r\n", b"", framed(b"late") + LAST + b"x"]))
    pieces: list[bytes] = []
    for part in [HEAD, *draw(st.lists(chunks, max_size=6)), last]:
        how = draw(st.sampled_from(["alone"] * 4 + ["joined", "cut"]))
        if how == "joined" and pieces:
            pieces[-1] += part
        elif how == "cut":
            cut = draw(st.integers(0, len(part)))
            pieces += [part[:cut], part[cut:]]
        else:
            pieces.append(part)
    return [piece for piece in pieces if piece]


@pytest.mark.long
@profile
@given(arrivals())
@example([FIRST, b"c\r\na\r\n1\r\n", b"1\r\nb\r\n", b"\r\n", LAST])  # a chunk that only seems to end, and to follow
@example([FIRST + b"1", b"5\r\nabcde\r\n", b"a" * 14 + b"\r\n", LAST])  # the size is 0x15
@example([HEAD[:-2], framed(b"a"), LAST])
@example([FIRST, b"0\r\n", framed(b"a"), LAST])
def test_an_answer_is_the_same_however_it_arrives(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    bytewise = [*(whole[at : at + 1] for at in range(len(whole) - 2)), whole[-2:]]  # the parser gets all of these
    assert hear(*pieces) == hear(whole) == hear(*bytewise)
