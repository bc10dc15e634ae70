"""A request whose prompt one engine reads, and which another one answers."""

from __future__ import annotations

from enginehouse.domain.replica import Route
from enginehouse.relay.jobs.job import InferenceJob
from enginehouse.relay.jobs.pairs import pair_route


class HandOverJob(InferenceJob):
    """Where the strategy says so, one engine reads the prompt, and hands its KV cache over to the one that answers.

    If the first one fails while the other one waits for it, the request is cancelled there, and sent again.
    """

    prepares = True

    def route(self, failed: tuple[str, ...]) -> Route:
        return pair_route(self, self._one_route, failed)

    def _one_route(self, failed: tuple[str, ...]) -> Route:
        return super().route(failed)
