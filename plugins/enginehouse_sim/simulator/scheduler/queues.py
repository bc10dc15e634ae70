"""The waiting requests, in the order of their turns.

The scheduler peeks at the head and pops only a request that it placed, so no request is lost or overtaken.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator

from enginehouse_sim.simulator.domain.constants import SchedulingPolicy
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus

_FIRST, _THEN = 0, 1


class WaitingRequests:
    """All waiting requests: by ``priority`` the smallest one first, then the earliest arrival, as in vLLM; else equals.

    Requests that hold blocks already, because of a load, come before all others, as in vLLM. Behind a request that
    needs their blocks, they would keep these for ever.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._by_priority = policy is SchedulingPolicy.PRIORITY
        self._count = 0
        self._waiting: list[tuple[int, tuple[int, float, str], int, RequestState]] = []
        self._skipped: list[RequestState] = []

    def add(self, request: RequestState) -> None:
        """Add a new request, after its equals."""
        self._count += 1
        self._insert(_THEN, request, self._count)

    def put_back(self, request: RequestState) -> None:
        """Add a request that had its turn, before its equals."""
        self._count += 1
        self._insert(_FIRST if _holds_blocks(request) else _THEN, request, -self._count)

    def remove(self, request_ids: Collection[str]) -> None:
        """Remove requests that finished while waiting. Unknown ids are ignored."""
        self._waiting = [entry for entry in self._waiting if entry[3].request_id not in request_ids]

    def peek(self) -> RequestState | None:
        return self._waiting[0][3] if self._waiting else None

    def pop(self) -> RequestState:
        return self._waiting.pop(0)[3]

    def skip(self) -> None:
        """Put the head aside until ``restore_skipped``; the next one is the head."""
        self._skipped.append(self.pop())

    def restore_skipped(self) -> None:
        """Return skipped requests to the head, in their order."""
        while self._skipped:
            self.put_back(self._skipped.pop())

    def __len__(self) -> int:
        return len(self._waiting) + len(self._skipped)

    def __iter__(self) -> Iterator[RequestState]:
        yield from self._skipped
        for entry in self._waiting:
            yield entry[3]

    def holders(self) -> list[RequestState]:
        """The waiting requests that hold blocks."""
        found = [request for request in self._skipped if _holds_blocks(request)]
        for place, _, _, request in self._waiting:
            if place != _FIRST:
                break
            if _holds_blocks(request):
                found.append(request)
        return found

    def _insert(self, place: int, request: RequestState, number: int) -> None:
        key = (request.priority, request.arrival_time, request.request_id) if self._by_priority else (0, 0.0, "")
        insort(self._waiting, (place, key, number, request))


def _holds_blocks(request: RequestState) -> bool:
    return request.num_computed_tokens > 0 or request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
