"""h11 as a server and as a client, to compare the gateway's parsers with."""

from __future__ import annotations

from typing import NamedTuple

import h11
import httptools


class Request(NamedTuple):
    """A request as a server read it. Names of headers are in lower case."""

    method: bytes
    path: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Tolerated(NamedTuple):
    """Something that the gateway reads as if it were ``plain``, though h11 refuses it."""

    odd: bytes
    plain: bytes
    why: str


def path_of(target: bytes) -> bytes:
    """The path and query of a target: they decide where a request goes."""
    url = httptools.parse_url(target)
    return bytes(url.path or b"") + (b"?" + url.query if url.query else b"")


class Reading(NamedTuple):
    """The complete requests of a stream, and why the rest is refused, if it is."""

    requests: list[Request]
    refusal: str


def read_requests(stream: bytes) -> Reading:
    """Read a stream with h11, as a server that answers every request at once."""
    peer = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    peer.receive_data(stream)
    requests: list[Request] = []
    head: h11.Request | None = None
    body = b""
    try:
        while (event := peer.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                requests.append(Request(head.method, path_of(head.target), tuple(head.headers), body))
                peer.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                peer.send(h11.EndOfMessage())
                if peer.our_state is not h11.DONE:
                    break
                peer.start_next_cycle()
            else:
                break
    except (h11.RemoteProtocolError, httptools.HttpParserError) as error:
        return Reading(requests, str(error))
    return Reading(requests, "")


class Answer(NamedTuple):
    """An engine's complete answer, or none. ``kept``: the connection stays usable. ``rest``: what followed."""

    status: int | None
    body: bytes
    kept: bool
    rest: bytes = b""
    stream: bool = False


def read_answer(stream: bytes) -> Answer:
    """Read a stream with h11, as a client."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(stream)
    peer.receive_data(b"")
    status, body = None, b""
    try:
        while not isinstance(event := peer.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                return Answer(None, b"", False)
    except h11.RemoteProtocolError:
        return Answer(None, b"", False)
    return Answer(status, body, peer.their_state is h11.DONE, peer.trailing_data[0])
