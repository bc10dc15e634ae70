"""The client's side of a request without a stream, which is relayed as one."""

from __future__ import annotations

import msgspec

from enginehouse.domain.errors import UpstreamError, status_of
from enginehouse.relay.answers.gathered_answer import GatheredAnswer
from enginehouse.relay.answers.passing_door import PassingDoor
from enginehouse.relay.door import Door
from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.heads.headers import lines_without

_OF_STREAMS = (b"content-type:", b"cache-control:", b"x-accel-buffering:")
_JSON = b"content-type: application/json\r\n"


class GatheringDoor(PassingDoor):
    """Passes a stream on as one JSON object when it has ended. Other answers pass as they come.

    ``gathers``: the client asked for no stream; otherwise everything passes as it comes. An error event becomes an
    error with its own status, because the client has nothing yet. An answer that is too large is refused.
    """

    __slots__ = ("_answer", "_dropped", "_lines", "_memory", "gathers")

    def __init__(self, door: Door, memory: EngineMemory) -> None:
        super().__init__(door)
        self._memory = memory
        self._dropped = False
        self.gathers = False
        self._lines = b""
        self._answer: GatheredAnswer | None = None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        if self.gathers and status == 200 and b"content-type: text/event-stream" in lines.lower():
            self._answer = GatheredAnswer(self._memory)
            self._lines = lines_without(lines, _OF_STREAMS) + _JSON
        else:
            self._door.start(status, lines, length)

    def write(self, chunk: bytes) -> None:
        if self._answer is None:
            self._door.write(chunk)
        else:
            self._answer.add(chunk)
            self._check_room(self._answer)

    def release(self) -> None:
        """Drop the answer."""
        if self._answer is not None:
            self._answer.release()

    def finish(self, chunk: bytes) -> None:
        answer = self._answer
        if answer is None:
            self._door.finish(chunk)
            return
        answer.add(chunk)
        answer.read()
        self._check_room(answer)
        error = answer.error
        status, body = (200, answer.body()) if error is None else (_status(error), msgspec.json.encode(error))
        self._door.start(status, self._lines, len(body))
        self._door.finish(body)

    def _check_room(self, answer: GatheredAnswer) -> None:
        """Raise ``UpstreamError``, once, if ``answer`` is too large; then comes the event that says so."""
        if answer.why and not self._dropped:
            self._dropped = True
            raise UpstreamError(f"The engine's answer was dropped while the gateway gathered it: {answer.why}")


def _status(envelope: dict[str, object]) -> int:
    error = envelope.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return status_of(str(code))
