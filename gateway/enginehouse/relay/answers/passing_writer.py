"""Writes an answer to another writer: what all steps on the way to a client have in common."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.domain.errors import RequestError
from enginehouse.relay.response_writer import ResponseWriter


class PassingWriter(ResponseWriter):
    """Passes an answer on to another ``writer``. Subclasses change or watch it."""

    __slots__ = ("_writer",)

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

    def unread(self) -> int:
        return self._writer.unread()

    def abort(self) -> None:
        self._writer.abort()
