"""What is reported to one client."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Final, Literal

import msgspec

from enginehouse.records import WaitingStream
from enginehouse.tickets import Phase

Form = Literal["comments", "reasoning"]
"""Comments of the stream, which clients do not show; or the reasoning of a chat, which some do."""

_REPEAT_EVERY_S: Final = 5.0
_FORMS: Final[Mapping[str, tuple[Form, ...]]] = {
    "/v1/chat/completions": ("comments", "reasoning"),
    "/v1/completions": ("comments",),
}


def form_for(path: str, wanted: str | None) -> Form | None:
    """The form of reports in a stream of ``path`` whose model has the ``wanted`` one; ``None`` for no reports."""
    forms = _FORMS.get(path)
    if wanted is None or forms is None:
        return None
    return next((form for form in forms if form == wanted), forms[0])


class ProgressReport:
    """Reports to one client: when the phase or the position of its request has changed, and every 5 s.

    The first report is sent only while the request waits: it begins the stream, and from then on an error can only be
    the last event. Later reports do not mention that the engine has begun to work, but repeat to keep the stream alive.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._created = int(time())
        self._last: tuple[Phase, int] | None = None
        self._sent_at = 0.0

    def send(self, stream: WaitingStream) -> None:
        """Send a report if it is due."""
        serving = stream.phase is Phase.SERVING
        if serving and not stream.has_begun:
            return
        now = stream.phase, stream.position
        if (now == self._last or serving) and stream.waited < self._sent_at + _REPEAT_EVERY_S:
            return
        if stream.write(self._piece(f"{in_words(*now)}, {int(stream.waited)} s", stream)):
            self._last, self._sent_at = now, stream.waited

    def _piece(self, text: str, stream: WaitingStream) -> bytes:
        if self._form == "comments":
            return b": %s\n\n" % text.encode()
        delta = {"reasoning_content": f"{stream.model}: {text}\n"}
        chunk = {
            "id": f"chatcmpl-{stream.id}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": stream.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def in_words(phase: Phase, position: int) -> str:
    """A phase for a reader; ``position`` counts while the request is queued."""
    return f"queued, position {position}" if phase is Phase.QUEUED else phase.value
