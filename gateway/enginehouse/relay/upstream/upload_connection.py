"""A connection to an engine on which the body of a request follows piece by piece."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.aio.write_batch import WriteBatch
from enginehouse.relay.upstream.connection import Connection


class UploadConnection(Connection):
    """Serves one request. ``upload`` is called with whether the engine reads fast enough."""

    def __init__(self, remove: Callable[[Connection], None], writes: WriteBatch, now: Callable[[], float]) -> None:
        super().__init__(Connection.close, remove, writes, now)
        self.upload: Callable[[bool], None] | None = None
        self.writable = True

    def write(self, piece: bytes | bytearray) -> None:
        """Send the next piece of the body, unless the connection is closed."""
        if not self._transport.is_closing():
            self._transport.write(bytes(piece))

    def pause_writing(self) -> None:
        self._set_writable(False)

    def resume_writing(self) -> None:
        self._set_writable(True)

    def _set_writable(self, writable: bool) -> None:
        self.writable = writable
        if self.upload is not None:
            self.upload(writable)
