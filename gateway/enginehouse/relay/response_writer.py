"""The narrow interface between a live request and its client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.domain.errors import RequestError
from enginehouse.domain.tokens import Tokens
from enginehouse.interfaces.authenticators import AdmittedCaller


class ResponseWriter(ABC):
    """Where the answer of one exchange is written: the client's connection, or a step on the way there.

    The exchange calls ``start``, ``write`` any number of times, and ``finish``; or ``answer`` alone; or ``abort`` at
    any point. ``start`` sends nothing by itself: the head leaves together with the first piece. The client's connection
    calls the exchange's ``client_disconnected``, ``pause`` and ``resume``. A writer that watches the answer raises
    ``RequestError`` to refuse the rest of it.

    ``holds_back``: it may still decide what the client gets when an answer was finished, or count its tokens. Only then
    are ``settle`` and ``counted`` asked.
    """

    __slots__ = ()
    holds_back: bool = False

    @property
    def address(self) -> str:
        """The client's address; empty if it has none."""
        return ""

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Send a whole response."""
        self.start(status, lines, len(body))
        self.finish(body)

    @abstractmethod
    def start(self, status: int, lines: bytes, length: int | None) -> None:
        """Set the response's head: ``lines`` are its headers as they stand on the wire, each ending in CRLF.

        ``length``: of the body in bytes, if known. The writer adds the framing.
        """

    @abstractmethod
    def write(self, chunk: bytes) -> None:
        """Send a piece of the body."""

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        """Call ``then`` once it is decided what the client gets of an answer that was finished.

        It gets the error that takes the place of the answer, or ends it; ``None`` for the answer.
        """
        then(None)

    def counted(self) -> Tokens | None:
        """The tokens that an answer tells in a form which only this writer knows."""
        return None

    def chunks_to(self) -> BatchedTransport | None:
        """Where chunks of a body of unknown length may be written once a piece was; ``None`` if all must come here."""
        return None

    @abstractmethod
    def finish(self, chunk: bytes) -> None:
        """Send the last piece of the body, which may be empty."""

    @abstractmethod
    def unread(self) -> int:
        """The number of bytes that the client has not taken yet."""

    @abstractmethod
    def abort(self) -> None:
        """Break the connection, so that the client sees that the response is incomplete."""


class PassingWriter(ResponseWriter):
    """Passes an answer on to another ``writer``. Subclasses change, watch or hold it."""

    __slots__ = ("_writer",)
    holds_back = True

    def __init__(self, writer: ResponseWriter) -> None:
        self._writer = writer

    @property
    def address(self) -> str:
        return self._writer.address

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._writer.start(status, lines, length)

    def write(self, chunk: bytes) -> None:
        self._writer.write(chunk)

    def finish(self, chunk: bytes) -> None:
        self._writer.finish(chunk)

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        self._writer.settle(then)

    def counted(self) -> Tokens | None:
        return self._writer.counted()

    def unread(self) -> int:
        return self._writer.unread()

    def abort(self) -> None:
        self._writer.abort()


class OpenExchange(Protocol):
    """An exchange, as the client's side sees it."""

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        """Send the request, which is now whole, to an engine."""

    def cancel(self, error: RequestError | None = None) -> None:
        """End the request, with ``error``."""

    def client_disconnected(self) -> None:
        """End the request, whose answer no longer has a reader."""

    def withdraw(self) -> bool:
        """End the request unanswered and unreported if no engine has got it; whether that is so."""

    @property
    def backend(self) -> str:
        """The backend that serves it now; empty if there is none."""
        return ""

    def save(self, writer: ResponseWriter) -> tuple[bytes, bytes] | None:
        """End a stream unreported that another process can continue; ``None`` if it cannot.

        Returns the request's body, and what ``go_on`` takes. Nothing may stand between the exchange and ``writer``.
        """
        return None

    def go_on(self, body: bytes, caller: AdmittedCaller | None, saved: bytes) -> bool:
        """As ``begin``, continue a stream whose beginning the client has from another process; whether it can."""
        return False

    def pause(self) -> None:
        """Read no more of the engine's answer until ``resume``: the client is slow."""

    def resume(self) -> None:
        """Read on."""
