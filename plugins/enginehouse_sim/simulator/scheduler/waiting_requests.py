"""The waiting requests, in the order of their turns.

The scheduler peeks at the head and pops only a request that it placed, so no request is lost or overtaken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from enginehouse import EnginePolicy
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.waiting_queue import WaitingQueue, waiting_queue


class WaitingRequests:
    """All waiting requests.

    Requests that hold blocks already, because of a load, come before all others, as in vLLM. Behind a request that
    needs their blocks, they would keep these for ever.
    """

    def __init__(self, policy: EnginePolicy) -> None:
        self._queue = waiting_queue(policy)
        self._holding = waiting_queue(policy)
        self._skipped: list[RequestState] = []

    def add(self, request: RequestState) -> None:
        """Add a new request."""
        self._queue.add(request)

    def put_back(self, request: RequestState) -> None:
        """Add a preempted or resumed request, before its equals."""
        self._queue_of(request).put_back(request)

    def remove(self, request_ids: Collection[str]) -> None:
        """Remove requests that finished while waiting."""
        self._queue.remove(request_ids)
        self._holding.remove(request_ids)

    def peek(self) -> RequestState | None:
        """The request at the head."""
        queue = self._holding or self._queue
        return queue.peek() if queue else None

    def pop(self) -> RequestState:
        """Remove the head, and return it."""
        return (self._holding or self._queue).pop()

    def skip(self) -> None:
        """Put the head aside until ``restore_skipped``; the next one is the head."""
        self._skipped.append(self.pop())

    def restore_skipped(self) -> None:
        """Return skipped requests to the head, in their order."""
        while self._skipped:
            self.put_back(self._skipped.pop())

    def __len__(self) -> int:
        return len(self._queue) + len(self._holding) + len(self._skipped)

    def __iter__(self) -> Iterator[RequestState]:
        yield from self._skipped
        yield from self._holding
        yield from self._queue

    def holders(self) -> Iterator[RequestState]:
        """The waiting requests that hold blocks."""
        return (request for request in (*self._skipped, *self._holding) if _holds_blocks(request))

    def _queue_of(self, request: RequestState) -> WaitingQueue:
        return self._holding if _holds_blocks(request) else self._queue


def _holds_blocks(request: RequestState) -> bool:
    return request.num_computed_tokens > 0 or request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
