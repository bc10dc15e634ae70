"""Keeps the answer that passes through a door, for the trace of its request."""

from __future__ import annotations

from enginehouse.relay.door import Door
from enginehouse.telemetry.trace_context import MOST_CAPTURED


class CapturedDoor(Door):
    """Another ``door``, whose answers are also added to ``kept``, up to 256 KiB."""

    __slots__ = ("_door", "_kept")

    def __init__(self, door: Door, kept: bytearray) -> None:
        self._door = door
        self._kept = kept

    @property
    def address(self) -> str:
        return self._door.address

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._door.start(status, lines, length)

    def write(self, chunk: bytes) -> None:
        self._keep(chunk)
        self._door.write(chunk)

    def finish(self, chunk: bytes) -> None:
        self._keep(chunk)
        self._door.finish(chunk)

    def unread(self) -> int:
        return self._door.unread()

    def abort(self) -> None:
        self._door.abort()

    def _keep(self, chunk: bytes) -> None:
        self._kept += chunk[: MOST_CAPTURED - len(self._kept)]
