"""The client's side of a stream from which something is cut."""

from __future__ import annotations

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.relay.continuation.added_fields import Cut
from enginehouse.relay.door import Door


class CutDoor(Door):
    """Passes to another ``door`` what ``cut`` leaves of the whole events of a stream."""

    __slots__ = ("_cut", "_door")

    def __init__(self, door: Door, cut: Cut) -> None:
        self._door = door
        self._cut = cut

    @property
    def address(self) -> str:
        return self._door.address

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._door.start(status, lines, None)

    def write(self, chunk: bytes) -> None:
        if passed := self._cut(chunk):
            self._door.write(passed)

    def chunks_to(self) -> BatchedTransport | None:
        return self._door.chunks_to()

    def finish(self, chunk: bytes) -> None:
        self._door.finish(self._cut(chunk))

    def unread(self) -> int:
        return self._door.unread()

    def abort(self) -> None:
        self._door.abort()
