"""The client's side of a request without a stream, which is relayed as one."""

from __future__ import annotations

import msgspec

from enginehouse.domain.errors import UpstreamError, status_of
from enginehouse.interfaces.kept_streams import Gathering
from enginehouse.relay.answers.passing_door import PassingDoor
from enginehouse.relay.door import Door
from enginehouse.relay.heads.headers import lines_without

_OF_STREAMS = (b"content-type:", b"cache-control:", b"x-accel-buffering:")
_JSON = b"content-type: application/json\r\n"


class GatheringDoor(PassingDoor):
    """Passes a stream on as one JSON object when it has ended. Other answers pass as they come.

    ``whole`` makes that object; without it, everything passes as it comes. An error event becomes an error with its own
    status, because the client has nothing yet. An answer that is too large is refused.
    """

    __slots__ = ("_dropped", "_gathers", "_lines", "whole")

    def __init__(self, door: Door) -> None:
        super().__init__(door)
        self._dropped = self._gathers = False
        self._lines = b""
        self.whole: Gathering | None = None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        if self.whole is not None and status == 200 and b"content-type: text/event-stream" in lines.lower():
            self._gathers = True
            self._lines = lines_without(lines, _OF_STREAMS) + _JSON
        else:
            self._door.start(status, lines, length)

    def write(self, chunk: bytes) -> None:
        if self.whole is None or not self._gathers:
            self._door.write(chunk)
        else:
            self.whole.add(chunk)
            self._check_room(self.whole)

    def release(self) -> None:
        """Drop the answer."""
        if self.whole is not None:
            self.whole.release()

    def finish(self, chunk: bytes) -> None:
        answer = self.whole
        if answer is None or not self._gathers:
            self._door.finish(chunk)
            return
        answer.add(chunk)
        answer.read()
        self._check_room(answer)
        error = answer.error
        status, body = (200, answer.body()) if error is None else (_status(error), msgspec.json.encode(error))
        self._door.start(status, self._lines, len(body))
        self._door.finish(body)

    def _check_room(self, answer: Gathering) -> None:
        """Raise ``UpstreamError``, once, if ``answer`` is too large; then comes the event that says so."""
        if answer.why and not self._dropped:
            self._dropped = True
            raise UpstreamError(f"The engine's answer was dropped while the gateway gathered it: {answer.why}")


def _status(envelope: dict[str, object]) -> int:
    error = envelope.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return status_of(str(code))
