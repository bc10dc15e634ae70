"""The client's side of a request, behind another one."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.domain.errors import RequestError
from enginehouse.relay.door import Door


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
