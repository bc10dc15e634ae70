"""The tickets of a worker at the owner's queues."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from enginehouse.domain.ticket import Ticket
from enginehouse.processes.workers.channel import Send
from enginehouse.processes.workers.messages import BackendPlace
from enginehouse.processes.workers.tickets import OwnerQueues, TicketDesk
from enginehouse.scheduling.request_queue import RequestQueue, TicketHolder


class OneAtOnce:
    """A queue that grants one ticket at once, and the next one when that has ended."""

    launches = True

    def __init__(self) -> None:
        self.waiting: dict[Ticket, TicketHolder] = {}
        self.in_use: Counter[str] = Counter()

    def submit(self, ticket: Ticket, holder: TicketHolder) -> None:
        self.waiting[ticket] = holder
        self._grant()

    def served(self, replica: str, caller: str | None = None, keep_alive: float | None = None) -> None:
        self.in_use[replica] -= 1
        self._grant()

    def cancel(self, ticket: Ticket) -> None:
        self.waiting.pop(ticket, None)

    def generation(self, replica: str) -> int:
        return 1

    def _grant(self) -> None:
        while self.waiting and not any(self.in_use.values()):
            ticket = next(iter(self.waiting))
            if self.waiting.pop(ticket).granted():
                self.in_use[ticket.replica] += 1


def keeping(sent: list[Any]) -> Send:
    def send(_: object, *told: object, **__: object) -> None:
        sent.append(told)

    return cast("Send", send)


def test_the_places_of_a_worker_that_has_died_are_given_back_once() -> None:
    queue = OneAtOnce()
    sent: list[Any] = []
    queues = {"a": cast("RequestQueue", queue)}
    desk = TicketDesk(0, queues, keeping(sent), lambda: None, lambda _: None)
    for number in (1, 2, 3):
        desk.submit(number, "a", Ticket(id=f"request-{number}/1", replica="m@a"))
    assert queue.in_use == {"m@a": 1}
    desk.release()
    assert not any(queue.in_use.values()), "a place that came free as the first went back was never the worker's"
    assert not queue.waiting


def test_a_request_for_a_backend_that_is_gone_is_told_so() -> None:
    sent: list[Any] = []
    desk = TicketDesk(0, {}, keeping(sent), lambda: None, lambda _: None)
    desk.submit(1, "a", Ticket(id="request/1", replica="m@a"))
    assert "The replica 'm@a' was lost while the request waited for it" in str(sent)


class Holder:
    """A request that takes its ticket."""

    def granted(self) -> bool:
        return True

    def refused(self, error: Exception, joined_load: bool = False) -> None:
        raise error


async def test_only_grants_while_others_wait_show_a_worker_how_fast_the_host_is() -> None:
    owner: Any = SimpleNamespace(send=lambda *_: None)
    queues = OwnerQueues(owner, dict, lambda: None)
    queues.place(BackendPlace("a", None, "own"), "local")
    queue = queues.by_backend["a"]
    for number in (1, 2):
        queue.submit(Ticket(id=f"request-{number}", replica="m@a"), Holder())
    queues.granted(1, 0)
    queues.granted(2, 0)
    assert queue.backlog.rate == 0


async def test_a_worker_counts_what_waits_for_a_backend_that_has_changed_its_host_there() -> None:
    owner: Any = SimpleNamespace(send=lambda *_: None)
    queues = OwnerQueues(owner, dict, lambda: None)
    place = BackendPlace("a", None, "line")
    queues.place(place, "old")
    queues.place(BackendPlace("b", None, "line"), "old")
    queue, beside = queues.by_backend["a"], queues.by_backend["b"]
    for number, each in enumerate((queue, beside)):
        each.submit(Ticket(id=f"request-{number}", replica=each.place("m")[0]), Holder())
    queues.place(place, "new")
    assert queues.by_backend["a"] is queue
    assert (queue.backlog.waiting, beside.backlog.waiting) == (1, 1)
    queues.granted(1, 0)
    assert (queue.backlog.waiting, beside.backlog.waiting) == (0, 1)


async def test_a_worker_keeps_nothing_of_hosts_that_are_gone() -> None:
    owner: Any = SimpleNamespace(send=lambda *_: None)
    queues = OwnerQueues(owner, dict, lambda: None)
    for number in range(3):
        queues.place(BackendPlace("a", None, "line"), f"host-{number}")
    assert [*queues._backlogs] == ["line host-2"]
