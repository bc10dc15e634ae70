"""Drives a scheduler through a workload: requests come and leave, steps are planned, executed and processed.

Both interpreters import this, so it needs the standard library and msgspec only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from tests.simulator.differential.workload import Item, StepRecord, Workload

MAX_STEPS = 600


class Scheduled(ABC):
    """A scheduler under test. ``Plan`` is its own type for a planned step."""

    @abstractmethod
    def add(self, item: Item) -> None: ...

    @abstractmethod
    def abort(self, request_id: str) -> None: ...

    @abstractmethod
    def has_requests(self) -> bool: ...

    @abstractmethod
    def schedule(self) -> tuple[Any, StepRecord]: ...

    @abstractmethod
    def update(self, plan: Any, record: StepRecord, received: list[str], sent: list[str]) -> None:
        """Process the outcome of a step, with the transfers that ended; complete the record."""

    @abstractmethod
    def begun_loads(self) -> list[str]:
        """The requests whose asynchronous loads began since the last call."""

    @abstractmethod
    def begun_sends(self) -> list[str]:
        """The finished requests whose blocks are kept since the last call."""


def drive(workload: Workload, scheduler: Scheduled) -> list[StepRecord]:
    """All steps, or those so far if the workload does not end: then the last record is of step ``MAX_STEPS``."""
    records: list[StepRecord] = []
    in_flight: deque[tuple[Any, StepRecord]] = deque()
    ahead = 2 if workload.limits.get("async_scheduling") else 1
    items = {item.request_id: item for item in workload.items}
    last_event = max(max(item.comes_at, item.leaves_at or 0) for item in workload.items)
    receiving: dict[str, int] = {}
    sending: dict[str, int] = {}
    for number in range(MAX_STEPS):
        for item in workload.items:
            if item.comes_at == number:
                scheduler.add(item)
            if item.leaves_at == number:
                scheduler.abort(item.request_id)
        _begin(sending, scheduler.begun_sends(), number, {name: items[name].send_steps for name in items})
        if number > last_event and not scheduler.has_requests() and not any(each.scheduled for _, each in in_flight):
            break
        plan, record = scheduler.schedule()
        records.append(record)
        in_flight.append((plan, record))
        _begin(receiving, scheduler.begun_loads(), number, {name: items[name].load_steps for name in items})
        if len(in_flight) == ahead:
            received, sent = _ended(receiving, number), _ended(sending, number)
            scheduler.update(*in_flight.popleft(), received, sent)
            _begin(sending, scheduler.begun_sends(), number, {name: items[name].send_steps for name in items})
    return records


def _begin(under_way: dict[str, int], names: list[str], now: int, steps: dict[str, int]) -> None:
    under_way.update((name, now + steps[name]) for name in names)


def _ended(under_way: dict[str, int], now: int) -> list[str]:
    ended = [name for name, ends_at in under_way.items() if ends_at <= now]
    for name in ended:
        del under_way[name]
    return ended
