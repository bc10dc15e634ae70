"""The client's side of a request whose answer is changed on its way."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from enginehouse.relay.answers.held_answer import HeldAnswer
from enginehouse.relay.answers.passing_door import PassingDoor
from enginehouse.relay.door import Door
from enginehouse.relay.engine_memory import EngineMemory

_LARGEST: Final = 64 << 20
"""Bytes of a whole answer, which is changed at once."""


class ChangingDoor(PassingDoor):
    """Changes the events of a stream as they come, and any other answer when it is whole.

    ``memory`` has room for an answer that is not a stream; otherwise ``_dropped`` says why it is not held.
    """

    __slots__ = ("_dropped", "_held", "_lines", "_status", "_streams")

    def __init__(self, door: Door, memory: EngineMemory) -> None:
        super().__init__(door)
        self._status = 0
        self._lines = b""
        self._streams = False
        self._held = HeldAnswer(memory, "answer", _LARGEST)
        self._dropped = ""

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._status, self._lines = status, lines
        self._streams = status < 300 and b"content-type: text/event-stream" in lines.lower()

    def write(self, chunk: bytes) -> None:
        if not self._streams:
            self._hold(chunk)
        elif changed := self._changed(chunk):
            self._door.write(changed)

    def finish(self, chunk: bytes) -> None:
        if self._streams:
            self._door.finish(self._changed(chunk))
        else:
            self._hold(chunk)
            self._whole(bytes(self._held.body))

    def abort(self) -> None:
        self.release()
        self._door.abort()

    def release(self) -> None:
        """The client is gone: hold nothing of the answer any more."""
        self._held.drop()

    def _hold(self, chunk: bytes) -> None:
        if not self._dropped and (why := self._held.add(chunk)):
            self._dropped = why
            self._held.drop()

    def _deliver(self, status: int, lines: bytes, body: bytes) -> None:
        """Send a whole answer."""
        self._held.drop()
        self._door.start(status, lines, len(body))
        self._door.finish(body)

    @abstractmethod
    def _changed(self, chunk: bytes) -> bytes:
        """The client's bytes for whole events of the engine."""

    @abstractmethod
    def _whole(self, body: bytes) -> None:
        """Deliver an answer that is not a stream, now or later. It is empty if it was dropped."""
