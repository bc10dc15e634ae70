"""Writes an answer in the protocol of its client, and shows it to that protocol on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enginehouse import Protocol
from enginehouse.middleware import BatchedTransport, OpenExchange, PassingWriter, ResponseWriter
from enginehouse_translation.translating_writer import known

_MOST: Final = 1 << 20
"""Bytes of the beginning of an answer."""


class WatchingWriter(PassingWriter):
    """Passes an answer on, and shows its beginning to ``watch``, as of ``Native``, before the client has it.

    ``exchange``: whose answer it is.
    """

    __slots__ = ("_held", "_protocol", "_size", "_streams", "_watch", "exchange")

    def __init__(self, writer: ResponseWriter, watch: Callable[[str, bytes], bool], protocol: Protocol) -> None:
        super().__init__(writer)
        self._watch: Callable[[str, bytes], bool] | None = watch
        self._protocol = protocol
        self._held: list[bytes] = []
        self._size = 0
        self._streams = False
        self.exchange: OpenExchange | None = None

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
        backend = "" if self.exchange is None else self.exchange.backend
        try:
            enough = not backend or watch(backend, b"".join(held))
        except Exception as error:
            known(error, self._protocol)
            enough = True
        if enough or ended or full:
            self._watch = None
