"""A place at an engine that reads prompts."""

from __future__ import annotations

import asyncio

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.queue_slot import QueueSlot


class PromptSlot:
    """A share of the load of ``candidate``, and a slot of its queue if it has one. Call ``release`` once.

    The queue may still grant or refuse the slot of a request that was cancelled in the same step of the event loop.
    """

    def __init__(self, job: Job, candidate: Candidate) -> None:
        self.granted_or_not: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._load = candidate.load
        self._slot: QueueSlot | None = None
        self._load.begin()
        queue = job.context.queue_of(candidate)
        if queue is None:
            self.granted()
        else:
            self._slot = QueueSlot(self, queue, job.request_id, candidate.replica, job.priority, caller=job.key)
            self._slot.take()

    def granted(self) -> None:
        if not self.granted_or_not.done():
            self.granted_or_not.set_result(None)

    def rejected(self, error: RequestError) -> None:
        if not self.granted_or_not.done():
            self.granted_or_not.set_exception(error)

    def release(self) -> None:
        """Give it back."""
        self._load.end()
        if self._slot is not None:
            self._slot.release()
