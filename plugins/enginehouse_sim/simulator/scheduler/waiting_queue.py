"""Queues of waiting requests."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

from enginehouse import EnginePolicy
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.policies import overrides


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


class OrderedQueue(WaitingQueue):
    """The smallest key of a policy first. Requests with equal keys stand in the order in which they were added."""

    def __init__(self, policy: EnginePolicy) -> None:
        super().__init__()
        self._policy = policy
        self._count = 0
        self._requests: list[tuple[Any, int, RequestState]] = []  # with the key, and a number that tells equals apart

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
        insort(self._requests, (self._policy.order(request), number, request))


def waiting_queue(policy: EnginePolicy) -> WaitingQueue:
    """An empty queue with the order of ``policy``."""
    return OrderedQueue(policy) if overrides(policy, "order") else WaitingQueue()
