"""Keys and values that came along with requests from other engines."""

from __future__ import annotations

from enginehouse_sim.kv.source import KvSource
from enginehouse_sim.scheduler.request import RequestState


class Arrivals(KvSource):
    """Holds what was copied here, until the request that it belongs to has blocks for it."""

    def __init__(self) -> None:
        self._version = 0
        self._num_tokens: dict[str, int] = {}

    def expect(self, request_id: str, num_tokens: int) -> None:
        """The first ``num_tokens`` of a request that is about to begin are here."""
        self._num_tokens[request_id] = num_tokens

    @property
    def version(self) -> int:
        """What came for a request stays until it ends or has it."""
        return self._version

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """What came along."""
        return max(0, self._num_tokens.get(request.request_id, 0) - num_computed_tokens)

    def seconds(self, num_tokens: int) -> float:
        """None: all of it was copied before."""
        return 0.0

    def claim(self, request: RequestState, num_tokens: int) -> None:
        """The request has blocks; what it does not need of this is forgotten."""
        if not num_tokens:
            self._num_tokens.pop(request.request_id, None)

    def delivered(self, request_id: str) -> None:
        """It is in the request's blocks."""
        self._num_tokens.pop(request_id, None)

    def forget(self, request: RequestState) -> None:
        """The request ended."""
        self._num_tokens.pop(request.request_id, None)
