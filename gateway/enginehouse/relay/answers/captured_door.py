"""Keeps the answer that passes through a door, for the trace of its request."""

from __future__ import annotations

from enginehouse.relay.answers.passing_door import PassingDoor
from enginehouse.relay.door import Door
from enginehouse.telemetry.trace_context import MOST_CAPTURED


class CapturedDoor(PassingDoor):
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
