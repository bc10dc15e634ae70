"""The narrow interface between a live request and its client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements


class Door(Protocol):
    """The client's side of one exchange.

    ``start``, then any number of ``write``, then ``finish``; or ``abort`` at any point. ``start`` sends nothing by
    itself: the head leaves together with what follows. The door in turn calls ``client_gone``, ``pause`` and ``resume``
    of the exchange.
    """

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        """The response's head: ``lines`` are its headers as they stand on the wire, each ending in CRLF.

        ``length`` is that of the body in bytes, ``None`` when it is not known; framing is the door's business.
        """

    def write(self, chunk: bytes) -> None:
        """A piece of the body."""

    def finish(self, chunk: bytes) -> None:
        """The last piece of the body, which may be empty."""

    def abort(self) -> None:
        """Break the connection, so that nobody takes what was sent for a whole answer."""


class Farewell(NamedTuple):
    """How one side of a WebSocket ended: the code and the reason of its close frame.

    As in RFC 6455, the code is 1005 if it gave none, and 1006 if there was no close frame at all.
    """

    code: int
    reason: str = ""


class WebSocketDoor(Protocol):
    """The client's side of a WebSocket. ``subprotocols``: those that the client offers, the best first."""

    subprotocols: Sequence[str]

    async def accept(self, subprotocol: str | None, headers: Headers) -> None:
        """Open it."""

    async def refuse(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer the handshake with something else, in place of ``accept``."""

    async def receive(self) -> str | bytes | Farewell:
        """The client's next message, or how it ended; nothing but the latter before ``accept``."""

    async def send(self, message: str | bytes) -> None:
        """Send a message, once the client has read most of what went before; does nothing when it is gone."""

    async def close(self, farewell: Farewell) -> None:
        """Send a close frame; does nothing when the client is gone or sent one."""


class Caller(Protocol):
    """Whoever sent the request, as far as limits go."""

    @property
    def priority(self) -> int:
        """Of this caller's requests in a queue: higher first."""

    def admit(self, requirements: Requirements) -> None:
        """Raise ``Forbidden`` or ``RateLimited`` unless this caller may make this request now."""

    def may_use(self, model: str) -> bool:
        """Whether this caller may use ``model``."""

    def leave(self) -> None:
        """The admitted request has ended."""
