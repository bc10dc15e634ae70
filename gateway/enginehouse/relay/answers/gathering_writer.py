"""Writes a stream as one answer, for a client that asked for no stream."""

from __future__ import annotations

import msgspec

from enginehouse.domain.errors import RequestError, status_of
from enginehouse.interfaces.continuers import Gathering
from enginehouse.relay.heads import lines_without
from enginehouse.relay.response_writer import PassingWriter, ResponseWriter

_OF_STREAMS = (b"content-type:", b"cache-control:", b"x-accel-buffering:")
_JSON = b"content-type: application/json\r\n"


class GatheringWriter(PassingWriter):
    """Passes a stream on as one JSON object when it has ended. Other answers pass as they come.

    ``whole`` makes that object; without it, everything passes as it comes. An error event becomes an error with its own
    status, because the client has nothing yet. An answer that is too large is refused.

    ``_problem``: why the answer cannot be gathered: what the client gets.
    """

    __slots__ = ("_gathers", "_lines", "_problem", "whole")

    def __init__(self, writer: ResponseWriter) -> None:
        super().__init__(writer)
        self._gathers = False
        self._lines = b""
        self._problem: RequestError | None = None
        self.whole: Gathering | None = None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        if self.whole is not None and status == 200 and b"content-type: text/event-stream" in lines.lower():
            self._gathers = True
            self._lines = lines_without(lines, _OF_STREAMS) + _JSON
        else:
            self._writer.start(status, lines, length)

    def write(self, chunk: bytes) -> None:
        if self.whole is None or not self._gathers:
            self._writer.write(chunk)
        else:
            self._add(self.whole, chunk)

    def release(self) -> None:
        """Drop the answer."""
        if self.whole is not None:
            self.whole.release()

    def finish(self, chunk: bytes) -> None:
        answer = self.whole
        if answer is None or not self._gathers:
            self._writer.finish(chunk)
            return
        problem = self._problem
        if problem is None:
            status, body = self._add(answer, chunk, last=True)
        else:
            status, body = problem.status, msgspec.json.encode(problem.envelope())
        self._writer.start(status, self._lines, len(body))
        self._writer.finish(body)

    def _add(self, answer: Gathering, chunk: bytes, *, last: bool = False) -> tuple[int, bytes]:
        """Add a piece. Returns the status and the body after the last one.

        Raises ``RequestError``. Then ``finish`` is called with the event that says so.
        """
        try:
            answer.add(chunk)
            if not last:
                return 0, b""
            body, error = answer.body(), answer.error
            return (200, body) if error is None else (_status(error), msgspec.json.encode(error))
        except RequestError as error:
            self._problem = error.with_traceback(None)
            raise


def _status(envelope: dict[str, object]) -> int:
    error = envelope.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return status_of(str(code))
