"""The load that an operator asks for."""

from __future__ import annotations

from typing import cast

import pytest

from enginehouse import LoadFailed, ReplicaGone, RequestError, Ticket
from enginehouse.engines.wish import load
from enginehouse.scheduling.host import Host, Waiter


class Queue:
    """Refuses with each of the errors, then grants."""

    def __init__(self, *errors: RequestError) -> None:
        self.errors = list(errors)
        self.served_replicas: list[str] = []

    def now(self) -> float:
        return 0.0

    def submit(self, ticket: Ticket, waiter: Waiter) -> None:
        if self.errors:
            waiter.refused(self.errors.pop(0))
        else:
            assert waiter.granted()

    def served(self, replica: str) -> None:
        self.served_replicas.append(replica)

    def cancel(self, ticket: Ticket) -> None: ...


async def test_a_load_is_begun_anew_when_the_replica_it_waits_for_goes_away() -> None:
    queue = Queue(ReplicaGone("a@a"))
    await load(cast(Host, queue), "a@a")
    assert queue.served_replicas == ["a@a"]


@pytest.mark.parametrize("errors", [[ReplicaGone("a@a"), ReplicaGone("a@a")], [LoadFailed("no memory")]])
async def test_a_load_fails_when_it_goes_away_again_or_does_not_start(errors: list[RequestError]) -> None:
    with pytest.raises(LoadFailed):
        await load(cast(Host, Queue(*errors)), "a@a")
