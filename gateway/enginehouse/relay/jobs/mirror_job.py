"""The copy of a request, for the model that is compared with the one that served it."""

from __future__ import annotations

from enginehouse.domain.replica import Route
from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import RequestRecord
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import InferenceJob


class MirrorJob(InferenceJob):
    """Has one try, and nobody gets its answer. ``real``: the record of the request that it copies."""

    def __init__(
        self, context: RelayContext, path: str, headers: Headers, request_id: bytes, real: RequestRecord
    ) -> None:
        super().__init__(context, path, headers, request_id)
        self.real = real

    @property
    def max_retries(self) -> int:
        return 0

    @property
    def priority(self) -> int:
        """Every request of a client comes first."""
        return -1_000_000

    def _continuable(self, route: Route, body: bytes) -> bytes:
        return body
