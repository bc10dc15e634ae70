"""What becomes of an answer that does not fit into the stream that its client reads by now."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.domain.errors import UpstreamError
from enginehouse.relay.events import error_event
from enginehouse.relay.reply import Reply

_MOST_KEPT = 64 * 1024
_SAID = ("message", "type", "param", "code")


class Misfit(Reply):
    """Ends a stream with an error event that tells of an engine's answer: another status than 200, or no events.

    What the engine says of its error becomes the error; ``details`` has the status and the body, of which 64 KiB count.
    """

    __slots__ = ("_answered", "_backend", "_body")

    def __init__(self, stream: Reply, backend: str, status: int) -> None:
        super().__init__(stream._door)
        self.begun = self._stream = True
        self.status = status if status >= 400 else UpstreamError.status
        self._answered = status
        self._backend = backend
        self._body = b""

    def write(self, body: bytes) -> None:
        """A piece of the engine's body."""
        self._body = (self._body + body)[:_MOST_KEPT]

    def finish(self, body: bytes) -> None:
        """The last piece of it, and so of the stream."""
        self.write(body)
        answered, told = self._answered, _decoded(self._body)
        why = "answered" if answered >= 400 else "did not stream but answered"
        error = UpstreamError(f"Backend '{self._backend}' {why} {answered}", details={"status": answered, "body": told})
        envelope = error.envelope()
        said = told.get("error") if isinstance(told, dict) else None
        if isinstance(said, dict):
            envelope["error"] |= {name: said[name] for name in _SAID if name in said}
        self._door.finish(error_event(envelope))


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except ValueError:
        return body.decode(errors="replace")
