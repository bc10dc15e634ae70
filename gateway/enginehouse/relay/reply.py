"""What the client of an exchange gets."""

from __future__ import annotations

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.relay.door import Door
from enginehouse.relay.events import ENDS, comment, ends_as_done, error_event, whole_events


class Reply:
    """An engine's answer as it comes, or an error in the form that can still be sent.

    Of a stream only whole events are passed on, so that it can be continued or ended with an error event at any time.
    ``begun``: the answer has. ``status``: of the head, 0 until the door has that. ``paused``: the client reads slowly.
    """

    __slots__ = ("_door", "_held", "_last", "_stream", "begun", "paused", "status")

    def __init__(self, door: Door) -> None:
        self._door = door
        self._held = self._last = b""
        self._stream = False
        self.begun = self.paused = False
        self.status = 0

    def begin(self, status: int, lines: bytes, length: int | None, stream: bool) -> None:
        """The answer's head: its header lines, the length of its body where that is known, whether that is events."""
        self.begun = True
        self.status = status
        self._stream = stream
        self._door.start(status, lines, length)

    def open(self, lines: bytes) -> None:
        """The head of a stream for which there is no answer yet."""
        self.status = 200
        self._stream = True
        self._door.start(200, lines, None)

    def join(self, note: bytes) -> None:
        """The answer begins in an open stream; ``note``, of several lines, is for those who read the stream itself."""
        self.begun = True
        self.write(comment(note))

    def write(self, body: bytes) -> None:
        """A piece of the body."""
        if self._stream:
            if self._held or not body.endswith(ENDS):
                body, self._held = whole_events(self._held + body)
                if not body:
                    return
            self._last = body
        self._door.write(body)

    def ends_as_done(self, body: bytes) -> bool:
        """Whether a stream that ends with ``body`` ends as OpenAI's completion endpoints end theirs."""
        return ends_as_done(self._last + self._held + body)

    def finish(self, body: bytes) -> None:
        """The last piece of the body."""
        self._door.finish(self._held + body if self._held else body)

    def refuse(self, error: RequestError, request_id: bytes) -> None:
        """An error in place of an answer that has not begun."""
        body = msgspec.json.encode(error.envelope())
        lines = b"content-type: application/json\r\nx-request-id: %s\r\n" % request_id
        if error.retry_after is not None:
            lines += b"retry-after: %d\r\n" % error.retry_after
        self._door.start(error.status, lines, len(body))
        self._door.finish(body)

    def break_off(self, error: RequestError) -> None:
        """An error in the middle: the last event of a stream; anything else must just not look whole."""
        if self._stream:
            self._door.finish(error_event(error.envelope()))
        else:
            self._door.abort()
