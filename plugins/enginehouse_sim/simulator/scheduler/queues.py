"""The waiting requests, in the order of their turns.

The scheduler peeks at the head and pops only a request that it placed, so no request is lost or overtaken.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator

from enginehouse_sim.simulator.domain.constants import SchedulingPolicy
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus


class WaitingQueue:
    """First come, first served: all requests are equals. Iterates from head to tail.

    ``peek`` and ``pop`` require a queue that is not empty.
    """

    def __init__(self) -> None:
        self._waiting: deque[RequestState] = deque()

    def add(self, request: RequestState) -> None:
        """Add a new request, after its equals."""
        self._waiting.append(request)

    def put_back(self, request: RequestState) -> None:
        """Add a request that had its turn, before its equals."""
        self._waiting.appendleft(request)

    def peek(self) -> RequestState:
        return self._waiting[0]

    def pop(self) -> RequestState:
        return self._waiting.popleft()

    def remove(self, request_ids: Collection[str]) -> None:
        """Remove requests at any position. Unknown ids are ignored."""
        self._waiting = deque(request for request in self._waiting if request.request_id not in request_ids)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self._waiting)


class PriorityQueue(WaitingQueue):
    """The smallest ``priority`` first, then the earliest arrival, as in vLLM; equals in the order of their adding."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._requests: list[tuple[tuple[int, float, str], int, RequestState]] = []

    def add(self, request: RequestState) -> None:
        self._count += 1
        self._insert(request, self._count)

    def put_back(self, request: RequestState) -> None:
        self._count += 1
        self._insert(request, -self._count)

    def peek(self) -> RequestState:
        return self._requests[0][2]

    def pop(self) -> RequestState:
        return self._requests.pop(0)[2]

    def remove(self, request_ids: Collection[str]) -> None:
        self._requests = [entry for entry in self._requests if entry[2].request_id not in request_ids]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[RequestState]:
        return (request for _, _, request in self._requests)

    def _insert(self, request: RequestState, number: int) -> None:
        key = (request.priority, request.arrival_time, request.request_id)
        insort(self._requests, (key, number, request))


class WaitingRequests:
    """All waiting requests.

    Requests that hold blocks already, because of a load, come before all others, as in vLLM. Behind a request that
    needs their blocks, they would keep these for ever.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        queue = PriorityQueue if policy is SchedulingPolicy.PRIORITY else WaitingQueue
        self._queue: WaitingQueue = queue()
        self._holding: WaitingQueue = queue()
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
