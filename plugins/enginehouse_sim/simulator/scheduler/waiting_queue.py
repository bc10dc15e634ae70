"""Queues of waiting requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator

from enginehouse_sim.simulator.domain.constants import SchedulingPolicy
from enginehouse_sim.simulator.domain.request import RequestState


class WaitingQueue(ABC):
    """Iterates from head to tail. ``peek`` and ``pop`` require a queue that is not empty."""

    @abstractmethod
    def add(self, request: RequestState) -> None:
        """Add a new request, after its equals."""

    @abstractmethod
    def put_back(self, request: RequestState) -> None:
        """Add a request that had its turn, before its equals."""

    @abstractmethod
    def peek(self) -> RequestState: ...
    @abstractmethod
    def pop(self) -> RequestState: ...
    @abstractmethod
    def remove(self, request_ids: Collection[str]) -> None:
        """Remove requests at any position. Unknown ids are ignored."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[RequestState]: ...


class FcfsQueue(WaitingQueue):
    """First come, first served: all requests are equals."""

    def __init__(self) -> None:
        self._requests: deque[RequestState] = deque()

    def add(self, request: RequestState) -> None:
        self._requests.append(request)

    def put_back(self, request: RequestState) -> None:
        self._requests.appendleft(request)

    def peek(self) -> RequestState:
        return self._requests[0]

    def pop(self) -> RequestState:
        return self._requests.popleft()

    def remove(self, request_ids: Collection[str]) -> None:
        self._requests = deque(request for request in self._requests if request.request_id not in request_ids)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self._requests)


class PriorityQueue(WaitingQueue):
    """The smallest ``priority`` first, then the earliest arrival, then the smallest id, as in vLLM: no equals."""

    def __init__(self) -> None:
        self._requests: list[RequestState] = []

    def add(self, request: RequestState) -> None:
        insort(self._requests, request, key=_order)

    def put_back(self, request: RequestState) -> None:
        self.add(request)

    def peek(self) -> RequestState:
        return self._requests[0]

    def pop(self) -> RequestState:
        return self._requests.pop(0)

    def remove(self, request_ids: Collection[str]) -> None:
        self._requests = [request for request in self._requests if request.request_id not in request_ids]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self._requests)


def _order(request: RequestState) -> tuple[int, float, str]:
    return request.priority, request.arrival_time, request.request_id


def waiting_queue(policy: SchedulingPolicy) -> WaitingQueue:
    """An empty queue with the order of ``policy``."""
    return PriorityQueue() if policy is SchedulingPolicy.PRIORITY else FcfsQueue()
