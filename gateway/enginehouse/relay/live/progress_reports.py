"""Reports to the clients of streams that wait for their replica."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from enginehouse.aio.clock import Clock
from enginehouse.config.scheduling import SchedulingSettings
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.events.sse import comment
from enginehouse.relay.live.live_request import LiveRequest, each_alone
from enginehouse.scheduling.request_queue import RequestQueue
from enginehouse.scheduling.waiting_room import WaitingRoom

Form = Literal["comments", "reasoning"]
"""Comments of the stream, which clients do not show; or the reasoning of a chat, which some do."""

_LOOK_EVERY_S = 0.5
_REPEAT_EVERY_S = 5.0
_FORMS: Mapping[str, tuple[Form, ...]] = {
    "/v1/chat/completions": ("comments", "reasoning"),
    "/v1/completions": ("comments",),
}


class ProgressReports:
    """Reports to the clients of waiting streams, once they have waited for longer than ``progress_patience``.

    ``models`` and ``scheduling`` say which streams get reports, and in which form; ``queues`` and ``waiting_room``
    know the positions. All streams are checked together, only twice a second, because requests wait meanwhile.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSettings],
        scheduling: SchedulingSettings,
        queues: Mapping[str, RequestQueue],
        clock: Clock,
        waiting_room: WaitingRoom,
    ) -> None:
        self._waiting_room = waiting_room
        self._queues = queues
        self._clock = clock
        self._reports: dict[LiveRequest, ProgressReport] = {}
        self._next_look = 0.0
        self.configure(models, scheduling)

    def configure(self, models: Mapping[str, ModelSettings], scheduling: SchedulingSettings) -> None:
        """Use another configuration for reports that have not begun."""
        forms = {name: model.progress or scheduling.progress for name, model in models.items()}
        self._forms = {name: form for name, form in forms.items() if form != "off"}
        self._patience = scheduling.progress_patience

    def send_due(self, live: Collection[LiveRequest], now: float) -> None:
        """Send the reports that are due at ``now``, in seconds of the gateway's clock, to requests among ``live``."""
        if not live:
            self._reports.clear()
        if now < self._next_look or not self._forms:
            return
        self._next_look = now + _LOOK_EVERY_S
        self._reports = {request: report for request in live if (report := self._due(request, now)) is not None}
        if self._reports:
            waiting = {each.ticket: each for queue in {*self._queues.values()} for each in queue.waiting()}
            waiting.update(self._waiting_room.waiting())
            reports = self._reports
            each_alone(reports, lambda request: reports[request].send(request, waiting, now - request.began))

    def _due(self, request: LiveRequest, now: float) -> ProgressReport | None:
        reply, model, needs = request.waiting_reply, request.model, request.requirements
        if reply is None or model is None or needs is None or now - request.began < self._patience:
            return None
        form, forms = self._forms.get(model), _FORMS.get(needs.path)
        if form is None or forms is None or (request.ticket is None and not reply.status):
            return None
        return self._reports.get(request) or ProgressReport(
            reply, form if form in forms else forms[0], int(self._clock.epoch())
        )


class ProgressReport:
    """Reports to one client: when the phase or the position of its request has changed, and every 5 s.

    The first report is sent only while the request waits: it begins the stream, and from then on an error can only be
    the last event. Later reports do not mention that the engine has begun to work, but repeat to keep the stream alive.
    """

    def __init__(self, reply: Reply, form: Form, created: int) -> None:
        self._reply = reply
        self._form = form
        self._created = created
        self._last: tuple[Phase, int] | None = None
        self._sent_at = 0.0

    def send(self, request: LiveRequest, waiting: Mapping[Ticket, Waiting], waited: float) -> None:
        """Send the report if it is due after ``waited`` seconds; ``waiting`` has the tickets that still wait."""
        reply, ticket, model = self._reply, request.ticket, request.model
        place = waiting.get(ticket) if ticket is not None else None
        if reply.paused or model is None or (place is None and not reply.status):
            return
        now = (Phase.SERVING, 0) if place is None else (place.phase, place.position)
        if (now == self._last or place is None) and waited < self._sent_at + _REPEAT_EVERY_S:
            return
        self._last, self._sent_at = now, waited
        if not reply.status:
            reply.open(request.request_id)
        reply.write(self._piece(f"{in_words(*now)}, {int(waited)} s", model, request.request_id))

    def _piece(self, text: str, model: str, request_id: bytes) -> bytes:
        if self._form == "comments":
            return comment(text.encode())
        delta = {"reasoning_content": f"{model}: {text}\n"}
        chunk = {
            "id": f"chatcmpl-{request_id.decode()}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def in_words(phase: Phase, position: int) -> str:
    """A phase for a reader; ``position`` counts while the request is queued."""
    return f"queued, position {position}" if phase is Phase.QUEUED else phase.value
