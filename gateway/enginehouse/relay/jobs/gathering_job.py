"""A request whose answer may be gathered."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from enginehouse.domain.request import Headers
from enginehouse.domain.route import Route
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.answers.gathering_door import GatheringDoor
from enginehouse.relay.context import RelayContext
from enginehouse.relay.continuation.restrictions import PATHS, why_not
from enginehouse.relay.jobs.inference_job import InferenceJob
from enginehouse.telemetry.answer_meter import AnswerSize

_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_TRUE, _WITH_USAGE = msgspec.Raw(b"true"), msgspec.Raw(b'{"include_usage":true}')


class GatheringJob(InferenceJob):
    """Asks for a stream if another engine could continue it, and otherwise leaves the request as it is.

    ``gathering``: the door that turns such a stream into one answer. ``None`` passes every answer as it comes.
    """

    def __init__(
        self, context: RelayContext, path: str, headers: Headers, request_id: bytes, gathering: GatheringDoor | None
    ) -> None:
        super().__init__(context, path, headers, request_id)
        self._gathering = gathering

    def admit(self, body: bytes, caller: AdmittedCaller | None) -> None:
        super().admit(body, caller)
        assert self.requirements is not None
        if self._gathering is not None and self.path in PATHS and not self.requirements.stream:
            self.gathers = self._gathering.gathers = _is_continuable(self.body)

    def release(self, answer: AnswerSize, model: str, *, left: bool = False) -> None:
        super().release(answer, model, left=left)
        if self._gathering is not None:
            self._gathering.release()

    def body_for(self, route: Route) -> bytes:
        body = super().body_for(route)
        if self._gathering is None or not self._gathering.gathers:
            return body
        fields = _fields(body)
        fields |= {"stream": _TRUE, "stream_options": _WITH_USAGE}
        asked = self._continuable(route, msgspec.json.encode(fields))
        return asked if self.history is not None else body  # a stream that nobody can continue has no use here


def _is_continuable(body: bytes) -> bool:
    try:
        return not why_not(_object(body))
    except (ValueError, RecursionError):  # an engine may read what the gateway does not
        return False
