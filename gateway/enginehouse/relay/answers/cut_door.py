"""The client's side of a stream from which something is cut."""

from __future__ import annotations

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.relay.answers.passing_door import PassingDoor
from enginehouse.relay.continuation.added_fields import Cut
from enginehouse.relay.door import Door


class CutDoor(PassingDoor):
    """Passes on what ``cut`` leaves of the whole events of a stream."""

    __slots__ = ("_cut",)

    def __init__(self, door: Door, cut: Cut) -> None:
        super().__init__(door)
        self._cut = cut

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._door.start(status, lines, None)

    def write(self, chunk: bytes) -> None:
        if passed := self._cut(chunk):
            self._door.write(passed)

    def chunks_to(self) -> BatchedTransport | None:
        return self._door.chunks_to()

    def finish(self, chunk: bytes) -> None:
        self._door.finish(self._cut(chunk))
