"""What the client of a stream is told while it waits for its replica."""

from __future__ import annotations

from time import time
from typing import Literal

import msgspec

from enginehouse.domain.ticket import Phase
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.relay.events import comment
from enginehouse.relay.reply import Reply

Form = Literal["comments", "reasoning"]
"""Comments of the stream, which clients do not see; or the reasoning of a chat, which some show."""

_EVERY_S = 5.0
_HEAD = (
    b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
    b"x-request-id: %s\r\n"
)


class Progress:
    """Tells one client, whenever its phase or its place in the queue has changed, and every 5 s.

    That it is served is no news in itself, as the answer says so better. The first piece begins the stream, so from
    then on an error can only be its last event. There is no first piece for who does not wait any more.
    """

    __slots__ = ("_created", "_form", "_reply", "_request_id", "_told", "_told_at")

    def __init__(self, reply: Reply, form: Form, request_id: bytes) -> None:
        self._reply = reply
        self._form = form
        self._request_id = request_id
        self._created = int(time())
        self._told: tuple[Phase, int] | None = None
        self._told_at = 0.0

    def tell(self, waits: Waiting | None, model: str, waited: float) -> None:
        """How a request for ``model`` stands after ``waited`` seconds; ``waits``: unless its engine has it by now."""
        reply = self._reply
        if reply.paused or (waits is None and not reply.status):
            return
        now = (Phase.SERVING, 0) if waits is None else (waits.phase, waits.position)
        if (now == self._told or waits is None) and waited < self._told_at + _EVERY_S:
            return
        self._told, self._told_at = now, waited
        if not reply.status:
            reply.open(_HEAD % self._request_id)
        reply.write(self._piece(f"{in_words(*now)}, {int(waited)} s", model))

    def _piece(self, text: str, model: str) -> bytes:
        if self._form == "comments":
            return comment(text.encode())
        delta = {"reasoning_content": f"{model}: {text}\n"}
        chunk = {
            "id": f"chatcmpl-{self._request_id.decode()}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def in_words(phase: Phase, position: int) -> str:
    """How far a request is; ``position`` counts while it is queued."""
    return f"queued, position {position}" if phase is Phase.QUEUED else phase.value
