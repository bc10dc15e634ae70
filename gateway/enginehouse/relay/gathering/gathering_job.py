"""A request without a stream that is relayed as one."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.domain.route import Route
from enginehouse.relay.continuation.restrictions import PATHS, why_not
from enginehouse.relay.door import Caller
from enginehouse.relay.inference_job import InferenceJob

_object = msgspec.json.Decoder(dict[str, Any]).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_TRUE, _WITH_USAGE = msgspec.Raw(b"true"), msgspec.Raw(b'{"include_usage":true}')


class GatheringJob(InferenceJob):
    """Asks for a stream where another engine could continue it, and otherwise for what the client asked for."""

    __slots__ = ("_gathers",)

    def admit(self, body: bytes, caller: Caller | None) -> None:
        super().admit(body, caller)
        assert self.requirements is not None
        asked = self.path in PATHS and not self.requirements.stream
        self._gathers = asked and not why_not(_object(body))

    def body_for(self, route: Route) -> bytes:
        body = super().body_for(route)
        if not self._gathers:
            return body
        fields = _fields(body)
        fields |= {"stream": _TRUE, "stream_options": _WITH_USAGE}
        asked = self._continuable(route, msgspec.json.encode(fields))
        return asked if self.delivered is not None else body
