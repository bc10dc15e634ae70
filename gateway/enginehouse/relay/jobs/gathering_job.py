"""A request whose answer may be gathered."""

from __future__ import annotations

from enginehouse.domain.replica import Route
from enginehouse.domain.request import Headers
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.answers.gathering_writer import GatheringWriter
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import InferenceJob
from enginehouse.telemetry.answer_meter import AnswerSize


class GatheringJob(InferenceJob):
    """Asks for a stream if another engine could continue it, and otherwise leaves the request as it is.

    ``gathering``: the writer that turns such a stream into one answer. ``None`` passes every answer as it comes.
    """

    def __init__(
        self, context: RelayContext, path: str, headers: Headers, request_id: bytes, gathering: GatheringWriter | None
    ) -> None:
        super().__init__(context, path, headers, request_id)
        self._gathering = gathering

    def admit(self, body: bytes, caller: AdmittedCaller | None) -> None:
        super().admit(body, caller)
        gathering, context = self._gathering, self.context
        assert self.requirements is not None
        if gathering is not None and context.continuer is not None and not self.requirements.stream:
            gathering.whole = context.continuer.gathered(self.path, self.body, context.gathered_share)
            self.gathers = gathering.whole is not None

    def release(self, answer: AnswerSize, model: str, *, left: bool = False) -> None:
        super().release(answer, model, left=left)
        if self._gathering is not None:
            self._gathering.release()

    def body_for(self, route: Route) -> bytes:
        body = super().body_for(route)
        gathered = self._gathering.whole if self._gathering is not None else None
        if gathered is None:
            return body
        asked = self._continuable(route, gathered.as_stream(body))
        return asked if self.history is not None else body  # a stream that nobody can continue has no use here
