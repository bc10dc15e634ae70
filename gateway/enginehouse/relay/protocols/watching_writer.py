"""Writes an answer in the protocol of its client, and shows it to that protocol on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.interfaces.protocols import Protocol
from enginehouse.relay.answers.passing_writer import PassingWriter
from enginehouse.relay.protocols.translating_writer import known
from enginehouse.relay.request import Request
from enginehouse.relay.response_writer import ResponseWriter

_MOST: Final = 1 << 20
"""Bytes of the beginning of an answer."""


class WatchingWriter(PassingWriter):
    """Passes an answer on, and shows its beginning to ``watch``, as of ``Native``, before the client has it.

    ``request``: whose answer it is.
    """

    __slots__ = ("_held", "_protocol", "_size", "_streams", "_watch", "request")

    def __init__(self, writer: ResponseWriter, watch: Callable[[str, bytes], bool], protocol: Protocol) -> None:
        super().__init__(writer)
        self._watch: Callable[[str, bytes], bool] | None = watch
        self._protocol = protocol
        self._held: list[bytes] = []
        self._size = 0
        self._streams = False
        self.request: Request | None = None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._streams = b"content-type: text/event-stream" in lines.lower()
        if status >= 300:
            self._watch = None
        self._writer.start(status, lines, length)

    def write(self, chunk: bytes) -> None:
        if self._watch is not None:
            self._see(self._watch, chunk, ended=False)
        self._writer.write(chunk)

    def chunks_to(self) -> BatchedTransport | None:
        """Rare events come to ``write`` nevertheless: the first ones of a response are such."""
        return self._writer.chunks_to()

    def finish(self, chunk: bytes) -> None:
        if self._watch is not None:
            self._see(self._watch, chunk, ended=True)
        self._writer.finish(chunk)

    def _see(self, watch: Callable[[str, bytes], bool], chunk: bytes, *, ended: bool) -> None:
        self._size += len(chunk)
        self._held.append(chunk)
        full = self._size > _MOST
        if not (self._streams or ended or full):
            return
        held, self._held = self._held, []
        route = None if self.request is None else self.request.route
        try:
            enough = route is None or watch(route.chosen.backend, b"".join(held))
        except Exception as error:
            known(error, self._protocol)
            enough = True
        if enough or ended or full:
            self._watch = None
