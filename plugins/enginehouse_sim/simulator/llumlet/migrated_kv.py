"""Keys and values that a migration has copied here."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.source import KvSource


class MigratedKv(KvSource):
    """Keeps the copied tokens of a request until they are in its blocks."""

    def __init__(self) -> None:
        self._num_tokens: dict[str, int] = {}

    def expect(self, request_id: str, num_tokens: int) -> None:
        """Note that the first ``num_tokens`` of a request that is about to start here have been copied."""
        self._num_tokens[request_id] = num_tokens

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        return max(0, self._num_tokens.get(request.request_id, 0) - num_computed_tokens)

    def seconds(self, num_tokens: int) -> float:
        """0, because the migration has copied the tokens before."""
        return 0.0

    def claim(self, request: RequestState, num_tokens: int) -> None:
        if not num_tokens:
            self._num_tokens.pop(request.request_id, None)

    def delivered(self, request_id: str) -> None:
        self._num_tokens.pop(request_id, None)

    def release(self, request: RequestState) -> None:
        self._num_tokens.pop(request.request_id, None)
