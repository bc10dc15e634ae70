"""Requests as the server reads them against requests as h11 reads them, however malformed and however cut."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.fake_client import FakeClient
from tests.support.h11_peer import Reading, Request, Tolerated, read_requests
from tests.support.hypothesis_profiles import always_alike

profile = always_alike(150)

PLAIN = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


TOLERATED = {
    "an empty line first": Tolerated(b"\r\n\r\n" + PLAIN, PLAIN, "RFC 9112, 2.2 asks for it"),
    "a line feed first": Tolerated(b"\n" + PLAIN, PLAIN, "an empty line, too; no request can be hidden in it"),
    "a carriage return first": Tolerated(b"\r" + PLAIN, PLAIN, "likewise"),
    "a chunk size with many zeros": Tolerated(
        CHUNKED + b"0" * 30 + b"3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
        "the grammar knows no longest size, and its value is checked for overflow",
    ),
}
ALIKE = ("no request line", "illegal request line", "illegal chunk header")
"""How h11 words what is tolerated, and more."""


def agree(passed: Request, read: Request) -> bool:
    """Whether a request that was passed on is the one that was sent: no other framing, no line from elsewhere.

    h11 writes the names of codings in lower case.
    """
    headers = {(name, value.lower() if name == b"transfer-encoding" else value) for name, value in passed.headers}
    return bool(passed[:2] == read[:2] and passed.body == read.body and headers <= set(read.headers))


def check(server: FakeClient, stream: bytes, read: Reading, cuts: list[int], patient: bool) -> None:
    """The server passes on nothing but what the oracle has read, and hangs up where that leaves something out."""
    whole = server.passes(stream, patient=patient)
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    cut = whole if len(edges) <= 2 else server.passes(*(stream[a:b] for a, b in pairwise(edges)), patient=patient)
    for passage in (whole, cut):
        assert len(passage.requests) <= len(read.requests) or read.refusal.startswith(ALIKE)
        assert all(agree(*pair) for pair in zip(passage.requests, read.requests, strict=False))
        refused = read.refusal and not read.refusal.startswith(ALIKE)
        assert passage.closed or not (refused or len(passage.requests) < len(read.requests))
        answers, _, refusal = passage.answer.partition(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"HTTP/1.1 200" not in refusal
        assert passage.closed or not refusal
        assert passage.aborted or answers.count(b"HTTP/1.1 200") == len(passage.requests)
    assert whole.closed == cut.closed
    if whole.closed:
        shorter, longer = sorted((whole.requests, cut.requests), key=len)
        assert longer[: len(shorter)] == shorter
    else:
        assert whole == cut


# --- streams

bodies = st.sampled_from([b"", b"abc", b"{}", NEXT, b"0\r\n\r\n" + NEXT, b"\r\n", bytes(range(256))])
targets = st.sampled_from([b"/v1/completions", b"/v1/chat/completions", b"/next", b"/a?b=c"])
# fmt: off
ODD: dict[str, list[bytes]] = {
    "method": [b"GET", b"HEAD", b"OPTIONS", b"CONNECT", b"post", b"PRI", b"P\0ST"],
    "before target": [b"  ", b"   ", b"\t", b" \t", b""],
    "behind target": [b"  ", b"   ", b"\t", b""],
    "host": [b"", b"Host: a\r\nHost: a", b"Host: a\r\nhost: b", b"Host:", b"X-Host: a"],
    "version": [
        b"RTSP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/1.1 ", b"http/1.1", b"HTTP/1.1\x0b",
        b"",
    ],
    "line end": [b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\0\r\n", b""],
    "length name": [b"Content-Length :", b"Content-Length\t:", b" Content-Length:", b"Content_Length:"],
    "length": [
        b" %d ", b"\t%d", b"%d\t", b"+%d", b"-%d", b"0x%d", b"%d,%d", b"%d, 9", b"%d 9", b"\x0b%d", b"%d_0", b"00%d",
        b"%d\0", b"%d;", b"%de1", b"1844674407370955161%d", b"9", b"0", b"",
    ],
    "coding name": [b"Transfer-Encoding :", b"Transfer-Encoding\t:", b" Transfer-Encoding:", b"Transfer_Encoding:"],
    "coding": [
        b"Chunked", b"\tchunked", b"chunked\t", b" chunked ", b"xchunked", b"chunked, chunked", b"gzip, chunked",
        b"chunked, identity", b"identity", b"gzip", b"\x0bchunked", b"chunked\x0b", b"\r\n chunked", b",chunked",
        b"chunked,", b"chunked;q=1", b'"chunked"', b"", b"chunked\0", b"chunk ed", b"\xa0chunked",
    ],
    "size": [
        b"%X", b"0%x", b"000%x", b"%x;a", b"%x;a=b", b'%x;a="b;c"', b"+%x", b"-%x", b"0x%x", b" %x", b"%x ", b"%x\t",
        b"%x ; a", b"%x;\0", b"%x;a\nb", b"%x;a\rb", b'%x;a="', b"%x_0", b"1000000000000000%x", b"", b"%xg", b"%x\x0b",
    ],
    "chunk end": [b"\n", b"\r", b"", b"a\r\n", b"\r\n\r\n"],
    "last chunk": [b"000\r\n", b"0;a\r\n", b"0\n", b"0\r", b"", b"0 \r\n", b"-0\r\n", b"0;\n\r\n"],
    "trailers": [
        b"X-T: 1\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"X T: 1\r\n", b" folded\r\n",
        b"X-T: 1\n", b"Host: b\r\n", b"Connection: close\r\n",
        b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    ],
    "end": [b"\n", b"", b"\r"],
    "line": [
        b"X-A: b", b"X-A:", b"X-A: \xff", b"X-A : b", b": b", b"none", b"X\0A: b", b"X A: b", b"X-A: b\0c",
        b"X-A: \x01", b"X-A: b\r\n folded: c", b"X-A: b\r\n\tfolded: c", b"X-A: b\nX-B: c", b"X-A: b\rX-B: c",
        b"X-A: \x7f", b"\xe9: b", b"Connection: keep-alive", b"Connection: x-a", b"Connection: content-length, host",
        b"Upgrade: h2c", b"Connection: upgrade\r\nUpgrade: h2c", b"Connection: upgrade\r\nUpgrade: websocket",
        b"Connection: close", b"Expect: 100-continue", b"X-Request-Id: a", b"TE: trailers", b"Trailer: x-a",
    ],
}
PLAINLY = {
    "method": b"POST", "before target": b" ", "behind target": b" ", "host": b"Host: a",
    "version": b"HTTP/1.1", "line end": b"\r\n", "length name": b"Content-Length:", "length": b" %d",
    "coding name": b"Transfer-Encoding:", "coding": b" chunked", "size": b"%x", "chunk end": b"\r\n",
    "last chunk": b"0\r\n", "trailers": b"", "end": b"\r\n", "line": b"Accept: */*",
}
# fmt: on
FRAMINGS = ("none", "length", "chunked", "length, coding", "coding, length", "length, length", "coding, coding")


def filled(form: bytes, number: int) -> bytes:
    return form % ((number,) * form.count(b"%"))


def compose(form: Callable[[str], bytes], framing: str, target: bytes, body: bytes, half: int, chunked: bool) -> bytes:
    """A request of which each part has the form that is given for it; ``half`` of its body is in the first chunk."""
    makers = {
        "length": lambda: form("length name") + filled(form("length"), len(body)),
        "coding": lambda: form("coding name") + form("coding"),
    }
    named = {"none": "", "chunked": "coding"}.get(framing, framing)
    lines = [form("host"), *(makers[name]() for name in named.split(", ") if name), form("line")]
    first = form("method") + form("before target") + target + form("behind target") + form("version")
    head = b"".join(line + form("line end") for line in (first, *lines) if line) + form("line end")
    if not chunked:
        return head if framing == "none" else head + body
    pieces = [piece for piece in (body[:half], body[half:]) if piece]
    wire = [filled(form("size"), len(piece)) + form("chunk end") + piece + form("chunk end") for piece in pieces]
    return head + b"".join(wire) + form("last chunk") + form("trailers") + form("end")


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request with up to three kinds of oddity, each perhaps in several places."""
    odd = draw(st.sets(st.sampled_from(sorted(ODD)), max_size=3))

    def form(part: str) -> bytes:
        return draw(st.sampled_from([PLAINLY[part], *ODD[part]])) if part in odd else PLAINLY[part]

    framing, body = draw(st.sampled_from(FRAMINGS)), draw(bodies)
    chunked = "coding" in framing or framing == "chunked"
    if "length, coding" in (framing, ", ".join(reversed(framing.split(", ")))):
        chunked = draw(st.booleans())
    return compose(form, framing, draw(targets), body, draw(st.integers(0, len(body))), chunked)


plain_requests = st.sampled_from(
    [
        *(PLAIN, NEXT, CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", CHUNKED + b"1;x=y\r\na\r\n2\r\nbc\r\n0\r\nX-T: 1\r\n\r\n"),
        b"POST /next HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        PLAIN.replace(b"Host: a", b"Host: a\r\nConnection: upgrade\r\nUpgrade: h2c"),
    ]
)
sprinkles = st.sampled_from(
    [
        b"\r",
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b"\0",
        b":",
        b";",
        b",",
        b"0",
        b"1",
        b"a",
        b"\x0b",
        b"\xff",
        b"-",
        b"\r\n\r\n",
        b"",
    ]
)
cuts = st.lists(st.integers(0, 400), max_size=4)


@pytest.mark.parametrize("part", sorted(ODD))
@pytest.mark.parametrize("framing", FRAMINGS)
def test_no_oddity_makes_the_server_read_other_requests(server: FakeClient, part: str, framing: str) -> None:
    streams = set()  # many oddities have no place in many framings
    for odd in ODD[part]:
        for places in (1, 9):
            for chunked in (True, False):
                left = [part] * places

                def form(asked: str, odd: bytes = odd, left: list[str] = left) -> bytes:
                    return odd if asked in left and left.pop() else PLAINLY[asked]

                body = b"0\r\n\r\n" + NEXT
                streams.add(compose(form, framing, b"/v1/completions", body, 5, chunked) + PLAIN)
    for stream in streams:
        check(server, stream, read_requests(stream), [], patient=False)


@profile
@given(st.lists(requests(), min_size=1, max_size=3), cuts, st.booleans())
def test_the_server_passes_on_what_h11_reads_or_hangs_up(
    server: FakeClient, sent: list[bytes], cuts: list[int], patient: bool
) -> None:
    stream = b"".join(sent)
    check(server, stream, read_requests(stream), cuts, patient)


HIDING = PLAIN.replace(b": 3", b": %d\r\nX-A: b" % len(PLAIN)).replace(b"abc", PLAIN)
"""A request whose body is another one."""


@profile
@given(requests(), st.lists(st.one_of(requests(), plain_requests), max_size=3), st.lists(st.integers(0, 400)))
@example(HIDING, [HIDING, HIDING, PLAIN], [len(HIDING) * n - len(PLAIN) for n in (1, 2, 3, 4)])
@example(HIDING, [PLAIN, PLAIN, PLAIN, NEXT, PLAIN], [len(HIDING) * n - len(PLAIN) for n in (1, 2, 3)])
@example(PLAIN, [PLAIN.replace(b"3\r\n\r\nabc", b"0\r\n\r\n"), PLAIN + PLAIN, PLAIN], [])
def test_a_head_that_comes_again_is_read_as_before(
    server: FakeClient, one: bytes, others: list[bytes], cuts: list[int]
) -> None:
    sent = [one, one, one, *others, one]
    ends = [sum(map(len, sent[:count])) for count in range(len(sent))]
    stream = b"".join(sent)
    check(server, stream, read_requests(stream), [*ends, *cuts], patient=False)


@profile
@given(
    st.lists(plain_requests, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), sprinkles), max_size=3),
    cuts,
    st.booleans(),
)
def test_no_stray_byte_makes_the_server_read_other_requests(
    server: FakeClient, sent: list[bytes], edits: list[tuple[int, int, bytes]], cuts: list[int], patient: bool
) -> None:
    stream = b"".join(sent)
    for at, gone, put in edits:
        at %= len(stream)
        stream = stream[:at] + put + stream[at + gone :]
    check(server, stream, read_requests(stream), cuts, patient)


@profile
@given(st.lists(plain_requests, min_size=1, max_size=5), st.lists(st.integers(0, 1000), max_size=8), st.booleans())
@example(sent=[PLAIN, CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", NEXT], cuts=list(range(300)), patient=False)
def test_well_formed_requests_pass_however_they_are_cut(
    server: FakeClient, sent: list[bytes], cuts: list[int], patient: bool
) -> None:
    stream = b"".join(sent)
    read = read_requests(stream)
    assert len(read.requests) == len(sent)
    check(server, stream, read, cuts, patient)
    assert not server.passes(stream).closed


@pytest.mark.parametrize("case", TOLERATED.values(), ids=TOLERATED)
def test_what_is_tolerated_has_one_reading(server: FakeClient, case: Tolerated) -> None:
    read, plain = read_requests(case.odd + NEXT), read_requests(case.plain + NEXT)
    assert read.refusal.startswith(ALIKE) or "multiple Host" in read.refusal
    passage = server.passes(case.odd + NEXT)
    assert not passage.closed
    assert [(r.path, r.body) for r in passage.requests] == [(r.path, r.body) for r in plain.requests]


@pytest.mark.parametrize("patient", [True, False])
def test_nothing_is_heard_after_the_last_answer(server: FakeClient, patient: bool) -> None:
    old = PLAIN.replace(b"1.1\r\n", b"1.0\r\nConnection: keep-alive\r\n")
    passage = server.passes(old + PLAIN, patient=patient)
    assert len(passage.requests) == 1
    assert passage.answer.endswith(b"ok")
    assert passage.closed


RTSP = NEXT.replace(b"HTTP", b"RTSP")
PLANTED = b"\r\n\r\n" + NEXT + b"0\r\n\r\n"
LENGTH = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-A: GET /next HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s"


@pytest.mark.parametrize(
    "before",
    [
        LENGTH % (len(PLANTED), PLANTED),
        CHUNKED + b"%x;x=GET\r\n%s\r\n0\r\n\r\n" % (len(PLANTED), PLANTED),
        CHUNKED + b"1\r\n\r\r\n%x\r\n%s\r\n00\r\nX-T: GET /next HTTP/1.1\r\n\r\n" % (len(PLANTED), PLANTED),
        NEXT + LENGTH % (len(PLANTED), PLANTED) + b"\r\n",
    ],
    ids=["length", "chunks", "more chunks", "not the first"],
)
@pytest.mark.parametrize("line", [RTSP, NEXT.replace(b" HTTP", b"  HTTP")], ids=["RTSP", "spaces"])
def test_a_line_in_a_body_does_not_pass_for_a_request_line(server: FakeClient, before: bytes, line: bytes) -> None:
    right, wrong = before + NEXT, before + line
    for at in range(1, len(wrong)):
        assert not server.passes(right[:at], right[at:], patient=True).closed
        assert server.passes(wrong[:at], wrong[at:], patient=True).closed
