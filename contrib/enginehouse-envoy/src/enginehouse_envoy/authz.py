"""External authorization over HTTP/1.1: the fast way.

Envoy asks with the client's path, headers and body. The answer 200 has the engine's address in a header, by which Envoy
then connects; any other answer goes to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import httptools
import msgspec

from enginehouse import Headers, InvalidRequest, RequestError
from enginehouse.picking import Pick, Picked, Picker
from enginehouse_envoy.access_log import HEADER, OpenPicks
from enginehouse_envoy.addresses import Address, Addresses
from enginehouse_envoy.messages import DESTINATION, inference_path, sender_in

_LEADS_TO = b"%s: %%s\r\n" % DESTINATION.encode()
_NAMES = b"%s: %%s\r\n" % HEADER.encode()

_REASONS = {
    200: b"OK",
    202: b"Accepted",
    400: b"Bad Request",
    403: b"Forbidden",
    429: b"Too Many Requests",
    503: b"Service Unavailable",
}
_REMOVE = b"x-envoy-auth-headers-to-remove"
"""By this header of an answer Envoy removes headers of the request."""
_BODILESS = (b"GET", b"HEAD", b"OPTIONS")
_READY = b"/enginehouse/ready"
"""Where Envoy asks for the picker's health. No answer is 200, with which a client's request of this path would pass."""
_CANNOT_REWRITE = (
    "Envoy's external authorization cannot change the body, and model '{}' needs that: an alias, another name at the "
    "engine, or a filter. Use external processing, or ask for the model by the engine's name"
)


class AuthzWriter:
    """What all connections share. ``priorities``: of objectives (``sender_in``)."""

    def __init__(self, picker: Picker, picks: OpenPicks, addresses: Addresses, priorities: Mapping[str, int]) -> None:
        self.picker = picker
        self.picks = picks
        self.addresses = addresses
        self.priorities = priorities
        self.connections: set[AuthzConnection] = set()

    def connection(self) -> AuthzConnection:
        """The protocol of a new connection."""
        return AuthzConnection(self)

    def close(self) -> None:
        """Close all connections."""
        for each in tuple(self.connections):
            each.close()


class AuthzConnection(asyncio.Protocol):
    """One of Envoy's connections. It brings one request after the other."""

    def __init__(self, writer: AuthzWriter) -> None:
        self._writer = writer
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._url = b""
        self._pieces: list[bytes] = []
        self._size = 0
        self._answer: _Answer | None = None

    # --- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writer.connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Envoy closes the connection of a request whose client has left."""
        self._writer.connections.discard(self)
        self._transport = None
        if self._answer is not None:
            self._answer.client_left()
            self._answer = None

    # --- from the parser

    def on_message_begin(self) -> None:
        self._headers, self._url, self._pieces, self._size = [], b"", [], 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size <= self._writer.picker.max_body:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        path = inference_path(self._url.partition(b"?")[0].decode("latin-1"))
        self._answer = answer = _Answer(self._writer, self._headers, self._write)
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        if self._size > self._writer.picker.max_body:
            answer.fail(self._writer.picker.too_large())
        elif self._url == _READY:
            self._write(202 if self._writer.picker.is_ready else 503, b"", b"")
        elif self._parser.get_method() in _BODILESS and not body:
            answer.choose_any()
        else:
            answer.decide(path, body)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _write(self, status: int, lines: bytes, body: bytes) -> None:
        self._answer = None
        if self._transport is not None:
            head = b"HTTP/1.1 %d %s\r\n%scontent-length: %d\r\n\r\n"
            self._transport.write(head % (status, _REASONS.get(status, b""), lines, len(body)) + body)


class _Answer:
    """The answer to one request: a ``PickClient``. ``write`` sends it."""

    def __init__(self, writer: AuthzWriter, headers: Headers, write: Callable[[int, bytes, bytes], None]) -> None:
        self._writer = writer
        self._headers = headers
        self._write = write
        self._pick: Pick | None = None
        self._body = b""
        self._task: asyncio.Task[None] | None = None

    def decide(self, path: str, body: bytes) -> None:
        """Have the gateway decide."""
        self._body = body
        address, on_behalf = sender_in(self._headers, self._writer.priorities)
        self._pick = self._writer.picker.pick(self, path, self._headers, address=address, on_behalf=on_behalf)
        self._pick.begin(body)

    def choose_any(self) -> None:
        """Choose an engine for a request without a model."""
        try:
            at = self._writer.picker.pick_any(self._headers)
        except RequestError as error:
            self.fail(error)
        else:
            self._lead_to([at], b"")

    def client_left(self) -> None:
        """End the request."""
        if self._task is not None:
            self._task.cancel()
        if self._pick is not None:
            self._pick.client_left()

    def fail(self, error: RequestError) -> None:
        """Answer with an error."""
        self.refused(error.status, b"content-type: application/json\r\n", msgspec.json.encode(error.envelope()))

    # --- from the gateway

    def picked(self, choice: Picked) -> None:
        if choice.body is not self._body:
            self._give_up(InvalidRequest(_CANNOT_REWRITE.format(choice.model), param="model"))
            return
        lines, withheld = choice.lines, choice.withheld
        if removed := [name for name, _ in self._headers if name in withheld]:
            lines += b"%s: %s\r\n" % (_REMOVE, b",".join(each for each in removed if each + b":" not in lines))
        self._lead_to(choice.addresses, lines)

    def refused(self, status: int, lines: bytes, body: bytes) -> None:
        self._pick = None
        self._write(status, lines, body)

    # --- inside

    def _lead_to(self, addresses: Sequence[Address], lines: bytes) -> None:
        text = self._writer.addresses.text(addresses)
        if text is None:
            self._task = asyncio.ensure_future(self._look_up(addresses, lines))
        else:
            self._allow(text, lines)

    async def _look_up(self, addresses: Sequence[Address], lines: bytes) -> None:
        try:
            text = await self._writer.addresses.looked_up(addresses)
        except RequestError as error:
            self._give_up(error)
        else:
            self._allow(text, lines)

    def _give_up(self, error: RequestError) -> None:
        """Answer with ``error`` a request for which there is a choice, which is of no use."""
        if self._pick is not None:
            asyncio.get_running_loop().call_soon(self._pick.fail, error)  # it may be in the middle of ``begin``
        self.fail(error)

    def _allow(self, text: str, lines: bytes) -> None:
        if self._pick is not None:
            lines += _NAMES % self._writer.picks.keep(self._pick).encode()
            self._pick = None  # otherwise the cycle of the two waits for the garbage collector
        self._write(200, _LEADS_TO % text.encode() + lines, b"")
