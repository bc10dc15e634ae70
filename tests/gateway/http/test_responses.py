"""Answers of engines as the relay reads them against answers as h11 reads them."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.fake_upstream import hear
from tests.support.h11_peer import Tolerated, read_answer
from tests.support.hypothesis_profiles import always_alike

profile = always_alike(150)

OK = b"HTTP/1.1 200 OK\r\n"
PLAIN = OK + b"content-length: 3\r\n\r\nabc"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
WHOLE = CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"
UNTIL_CLOSE = OK + b"\r\nabc"


TOLERATED = {
    "an empty line first": Tolerated(b"\r\n" + PLAIN, PLAIN, "left over from nothing, and it hides nothing"),
    "an empty line behind an informational answer": Tolerated(
        b"HTTP/1.1 103 Early\r\n\r\n\r\n" + PLAIN, PLAIN, "likewise"
    ),
    "an odd reason": Tolerated(PLAIN.replace(b"OK", b"O\x0bK"), PLAIN, "reasons are not passed on"),
    "another protocol's name": Tolerated(
        PLAIN.replace(b"HTTP", b"RTSP"), PLAIN, "the parser does not say so, and frames it in the same way"
    ),
    "a chunk size with many zeros": Tolerated(
        CHUNKED + b"0" * 30 + b"3\r\nabc\r\n0\r\n\r\n", WHOLE, "its value is checked for overflow"
    ),
}
REFUSED = {
    "both framings": OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "both framings, turned round": OK + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "two lengths": OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "the same length twice": OK + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "a list of lengths": OK + b"content-length: 3, 3\r\n\r\nabc",
    "a signed length": OK + b"content-length: +3\r\n\r\nabc",
    "an empty length": OK + b"content-length:\r\n\r\nabc",
    "another coding": OK + b"transfer-encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "no chunks": OK + b"transfer-encoding: identity\r\n\r\nabc",
    "chunks in chunks": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "a bad chunk size": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "a chunk that is too long": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "line feeds around chunks": CHUNKED + b"3\nabc\n0\n\n",
    "a folded line": OK + b"x-a: b\r\n content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "a space before a colon": OK + b"content-length : 3\r\n\r\nabc",
    "a second answer": PLAIN + PLAIN,
    "something behind the end": PLAIN + b"d",
    "something behind the last chunk": WHOLE + b"d",
    "something behind a last answer": OK + b"connection: close\r\ncontent-length: 3\r\n\r\nabcd",
    "another protocol": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "a status below 100 with a body": b"HTTP/1.1 099 No\r\ncontent-length: 3\r\n\r\nabc" + PLAIN,
    "a head that stops": b"HTTP/1.1 200 OK\r\ncontent-le",
    "a body that stops": OK + b"content-length: 4\r\n\r\nabc",
    "a chunk that stops": CHUNKED + b"4\r\nabc",
    "no last chunk": CHUNKED + b"3\r\nabc\r\n",
    "no end of the last chunk": CHUNKED + b"3\r\nabc\r\n0\r\n",
    "no end of the trailers": CHUNKED + b"3\r\nabc\r\n0\r\nx-a: b\r\n",
}


@pytest.mark.parametrize("stream", REFUSED.values(), ids=REFUSED)
def test_an_answer_that_is_in_doubt_is_refused(stream: bytes) -> None:
    heard = hear(stream)
    assert heard.status is None
    assert not heard.kept


@pytest.mark.parametrize("odd", [b"d", b"\r\n", PLAIN, b"\0"], ids=repr)
@pytest.mark.parametrize("answer", [PLAIN, WHOLE], ids=["length", "chunks"])
def test_a_connection_on_which_more_comes_than_was_asked_for_is_not_kept(answer: bytes, odd: bytes) -> None:
    heard = hear(answer, odd)
    assert (heard.status, heard.body, heard.kept) == (200, b"abc", False)
    assert hear(answer).kept


@pytest.mark.parametrize("line", [b"content-length: 3", b"transfer-encoding: chunked"])
@pytest.mark.parametrize("status", [204, 304])
def test_after_a_bodiless_answer_that_announces_a_body_the_connection_is_not_kept(status: int, line: bytes) -> None:
    first = b"HTTP/1.1 %d No\r\n" % status
    heard = hear(first + b"content-type: text/event-stream\r\n" + line + b"\r\n\r\n")
    assert heard == (status, b"", False, b"", False)
    assert hear(first + b"content-length: 0\r\n\r\n").kept


def test_an_informational_answer_leaves_nothing_behind() -> None:
    early = b"HTTP/1.1 103 Early\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream"
    for line in early.split(b"\r\n")[1:]:
        heard = hear(b"HTTP/1.1 103 Early\r\n" + line + b"\r\n\r\n" + UNTIL_CLOSE)
        assert heard == (200, b"abc", False, b"", False)


def test_trailers_are_dropped() -> None:
    trailing = CHUNKED + b"3\r\nabc\r\n0\r\ncontent-type: text/event-stream\r\nconnection: x-a\r\n\r\n"
    assert hear(trailing) == hear(WHOLE)


@pytest.mark.parametrize("case", TOLERATED.values(), ids=TOLERATED)
def test_what_is_tolerated_has_one_reading(case: Tolerated) -> None:
    assert read_answer(case.odd).status is None
    assert hear(case.odd) == hear(case.plain)


statuses = [
    b"200 OK",
    b"200",
    b"404 No",
    b"204 No",
    b"304 No",
    b"100 Go",
    b"101 Go",
    b"099 a",
    b"000 a",
    b"777 a",
    b"20 a",
]
lines = [
    *(b"content-length: 3", b"content-length: 5", b"content-length:3 ", b"content-length: 3, 3", b"content-length: +3"),
    *(b"content-length: 0", b"content-length : 3", b"Content-Length:\t3", b"content-length: 99999999999999999999"),
    *(b"transfer-encoding: chunked", b"Transfer-Encoding:Chunked ", b"transfer-encoding: gzip, chunked"),
    *(b"transfer-encoding: identity", b"transfer-encoding: chunked, gzip", b"transfer-encoding:\x0bchunked"),
    *(b"connection: close", b"connection: keep-alive", b"connection: upgrade\r\nupgrade: h2c", b"x-a: b\r\n folded"),
    *(b"x-a: b", b"x-a : b", b"x-a: b\0", b"x-a: b\rx-b: c", b"x-a: b\nx-b: c", b"content-type: text/event-stream"),
]
tails = [
    *(b"", b"abc", b"abcde", b"3\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n", b"3\r\nabc\r\n0\r\n", b"3\nabc\n0\n\n"),
    *(b"3;a=b\r\nabc\r\n0\r\nx-t: 1\r\n\r\n", b"0\r\n\r\n", b"-3\r\nabc\r\n0\r\n\r\n", b"3 \r\nabc\r\n", PLAIN, WHOLE),
]  # fmt: skip


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    version = draw(
        st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2", b"http/1.1"])
    )
    status = draw(st.sampled_from([b"200 OK"] * 6 + statuses))
    head = [version + b" " + status, *draw(st.lists(st.sampled_from(lines), max_size=3))]
    end = draw(st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r"]))
    return b"".join(line + end for line in (*head, b"")) + draw(st.sampled_from(tails))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Good answers with a few stray bytes in them."""
    stream = draw(st.sampled_from([PLAIN, WHOLE, UNTIL_CLOSE, b"HTTP/1.1 103 Early\r\n\r\n" + WHOLE]))
    strays = st.sampled_from(
        [b"\r", b"\n", b" ", b"\0", b":", b"0", b"1", b"a", b"\x0b", b"\r\n", b"\r\n\r\n", b"", PLAIN]
    )
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(stream)))
        stream = stream[:at] + draw(strays) + stream[at + draw(st.integers(0, 2)) :]
    return stream


def plainly(stream: bytes) -> bytes:
    """The same with reasons that h11 takes, of the same length, and no empty lines behind informational answers."""
    stream = re.sub(rb"(HTTP/1.[01] 1\d\d[^\r\n]*\r\n([^\r\n]+\r\n)*\r\n)[\r\n]+(?=HTTP/)", rb"\1", stream)
    return re.sub(rb"(?<=HTTP/1.[01] \d\d\d )[^\r\n]+", lambda reason: b"-" * len(reason[0]), stream)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[a:b] for a, b in pairwise(edges)]


@profile
@example(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\nabc", [])
@given(st.one_of(answers(), answers(), damaged()), st.lists(st.integers(0, 200), max_size=4))
def test_a_whole_answer_is_whole_to_h11_too(stream: bytes, cuts: list[int]) -> None:
    oracle = read_answer(plainly(stream.lstrip(b"\r\n")))
    for heard in (hear(stream), hear(*pieces(stream, cuts))):
        if heard.status is not None:
            assert (heard.status, plainly(heard.body)) == (oracle.status, oracle.body)
        if heard.kept:
            assert oracle.kept or (b"HTTP/1.0" in stream and b"keep-alive" in stream)  # h11 keeps none of HTTP/1.0
            assert not oracle.rest.strip(b"\r\n")


@profile
@given(st.one_of(answers(), damaged()), st.lists(st.integers(0, 200), min_size=1, max_size=4))
def test_an_answer_is_whole_however_it_is_cut(stream: bytes, cuts: list[int]) -> None:
    whole, cut = hear(stream), hear(*pieces(stream, cuts))
    # What follows the end makes the answer doubtful if it comes with it; afterwards it costs the connection only.
    assert cut == whole or (whole.status is None and not cut.kept) or (stream.endswith(b"\n") and not cut.kept)


@profile
@given(st.one_of(answers(), damaged()), st.one_of(st.none(), answers(), damaged()), st.lists(st.integers(0, 200)))
@example(PLAIN, PLAIN.replace(b"3\r\n\r\nabc", b"0\r\n\r\n"), [])
@example(PLAIN, PLAIN + PLAIN, [])
@example(PLAIN, PLAIN, [len(PLAIN) - 3])
@example(PLAIN, b"HTTP/1.1 103 Early\r\n\r\n" + PLAIN, [len(b"HTTP/1.1 103 Early\r\n\r\n")])
def test_a_head_that_comes_again_is_read_as_before(one: bytes, stream: bytes | None, cuts: list[int]) -> None:
    if not hear(one).kept:
        return
    segments = pieces(one if stream is None else stream, cuts)
    assert hear(*segments, before=[one, one, one]) == hear(*segments)
