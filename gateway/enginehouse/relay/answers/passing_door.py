"""The client's side of a request, behind another one that cuts something from the answer, or keeps it for a trace."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.domain.errors import RequestError
from enginehouse.relay.door import Door
from enginehouse.relay.events.added_fields import Cut
from enginehouse.telemetry.trace_context import MOST_CAPTURED


class PassingDoor(Door):
    """Passes an answer on to another ``door``. Subclasses change or watch it."""

    __slots__ = ("_door",)

    def __init__(self, door: Door) -> None:
        self._door = door

    @property
    def address(self) -> str:
        return self._door.address

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._door.start(status, lines, length)

    def write(self, chunk: bytes) -> None:
        self._door.write(chunk)

    def finish(self, chunk: bytes) -> None:
        self._door.finish(chunk)

    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        self._door.settle(then)

    def unread(self) -> int:
        return self._door.unread()

    def abort(self) -> None:
        self._door.abort()


class CuttingDoor(PassingDoor):
    """Passes on what ``cut`` leaves of the whole events of a stream."""

    __slots__ = ("_cut",)

    def __init__(self, door: Door, cut: Cut) -> None:
        super().__init__(door)
        self._cut = cut

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        self._door.answer(status, lines, body)

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._door.start(status, lines, None)

    def write(self, chunk: bytes) -> None:
        if passed := self._cut(chunk):
            self._door.write(passed)

    def chunks_to(self) -> BatchedTransport | None:
        return self._door.chunks_to()

    def finish(self, chunk: bytes) -> None:
        self._door.finish(self._cut(chunk))


class CapturingDoor(PassingDoor):
    """Also adds answers to ``kept``, up to 256 KiB."""

    __slots__ = ("_kept",)

    def __init__(self, door: Door, kept: bytearray) -> None:
        super().__init__(door)
        self._kept = kept

    def write(self, chunk: bytes) -> None:
        self._keep(chunk)
        self._door.write(chunk)

    def finish(self, chunk: bytes) -> None:
        self._keep(chunk)
        self._door.finish(chunk)

    def _keep(self, chunk: bytes) -> None:
        self._kept += chunk[: MOST_CAPTURED - len(self._kept)]
