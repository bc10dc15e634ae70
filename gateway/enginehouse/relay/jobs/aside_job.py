"""A request whose answer nobody reads, beside those of clients."""

from __future__ import annotations

from enginehouse.domain.replica import Route
from enginehouse.relay.jobs.job import InferenceJob
from enginehouse.telemetry.plugin_times import SampledCall


class AsideJob(InferenceJob):
    """Has one try. ``size``: of its body. ``on_end`` is called with its record."""

    hedges = False
    size: int
    on_end: SampledCall

    @property
    def max_retries(self) -> int:
        return 0

    @property
    def priority(self) -> int:
        """Every request of a client comes first."""
        return -1_000_000

    def _continuable(self, route: Route, body: bytes) -> bytes:
        return body
