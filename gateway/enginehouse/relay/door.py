"""The narrow interface between an exchange and its client."""

from __future__ import annotations

from typing import Protocol

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


class Caller(Protocol):
    """Whoever sent the request, as far as limits go."""

    @property
    def priority(self) -> int:
        """Of this caller's requests in a queue: higher first."""

    def admit(self, requirements: Requirements) -> None:
        """Raise ``Forbidden`` or ``RateLimited`` unless this caller may make this request now."""

    def leave(self) -> None:
        """The admitted request has ended."""
