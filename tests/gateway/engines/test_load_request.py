"""The load that an operator asks for."""

from __future__ import annotations

from typing import cast

import pytest

from enginehouse import ReplicaState, RequestError
from enginehouse.engines.loads import load
from enginehouse.errors import LoadFailed, ReplicaLost
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.scheduling.request_queue import TicketHolder
from enginehouse.tickets import Ticket


class Queue:
    """Refuses with each of the errors, then grants."""

    def __init__(self, *errors: RequestError) -> None:
        self.errors = list(errors)
        self.served_replicas: list[str] = []
        self.submitted = 0
        self.state: ReplicaState | None = ReplicaState.STOPPED

    def now(self) -> float:
        return 0.0

    def replica_state(self, replica: str) -> ReplicaState | None:
        return self.state

    def submit(self, ticket: Ticket, holder: TicketHolder) -> None:
        self.submitted += 1
        if self.errors:
            holder.refused(self.errors.pop(0))
        else:
            assert holder.granted()

    def served(self, replica: str) -> None:
        self.served_replicas.append(replica)

    def cancel(self, ticket: Ticket) -> None: ...


async def test_what_is_ready_is_loaded_whether_or_not_it_has_room() -> None:
    queue = Queue()
    queue.state = ReplicaState.READY
    await load(cast(HostQueue, queue), "a@a")
    assert queue.submitted == 0


async def test_a_load_is_started_again_when_its_replica_is_lost() -> None:
    queue = Queue(ReplicaLost("a@a"))
    await load(cast(HostQueue, queue), "a@a")
    assert queue.served_replicas == ["a@a"]


@pytest.mark.parametrize("errors", [[ReplicaLost("a@a"), ReplicaLost("a@a")], [LoadFailed("no memory")]])
async def test_a_load_fails_when_its_replica_is_lost_twice_or_does_not_start(errors: list[RequestError]) -> None:
    with pytest.raises(LoadFailed):
        await load(cast(HostQueue, Queue(*errors)), "a@a")
