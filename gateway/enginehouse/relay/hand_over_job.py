"""A request whose prompt one engine reads, and which another one answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter

import msgspec

from enginehouse.domain.errors import Overloaded, RequestError, UpstreamError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.route import Route
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.hand_over import handed_over, prompt_request, take_over
from enginehouse.relay.continuation.asking import one_token
from enginehouse.relay.continuation.restrictions import PATHS
from enginehouse.relay.gathering.gathering_job import GatheringJob
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_LONGEST_S = 3600.0
"""The time limit of an engine that has none."""


def can_hand_over(drivers: Mapping[str, Driver], path: str, candidate: Candidate) -> bool:
    """Whether the engine of ``candidate`` can read a prompt for another one, or answer what another one has read.

    ``drivers``: of every backend, by its name. ``path``: the endpoint of the request.
    """
    return path in PATHS and drivers[candidate.backend].hands_over


class HandOverJob(GatheringJob):
    """Where the strategy says so, one engine reads the prompt, and hands its KV cache over to the one that answers.

    If the first one cannot be asked, the other one reads the prompt itself: the client notices nothing.
    """

    __slots__ = ()

    prepares = True

    def route(self, failed: tuple[str, ...]) -> Route:
        route = super().route(failed)
        if not self._hands_over(route.chosen):
            return route
        assert self.requirements is not None
        context = self.context
        both = context.router.hand_over(self.requirements, context.fleet.snapshot, route, failed)
        return both if self._hands_over(both.chosen) else route

    async def prepare(self, route: Route) -> bytes:
        body = self.body_for(route)
        if route.prefill is None:
            return body
        parameters = await self._read_prompt(route.prefill, body)
        return body if parameters is None else take_over(body, parameters)

    def _hands_over(self, candidate: Candidate) -> bool:
        return can_hand_over(self.context.continuation.drivers, self.path, candidate)

    async def _read_prompt(self, prefill: Candidate, body: bytes) -> msgspec.Raw | None:
        """Have ``prefill`` read the prompt; returns the parameters for the other engine, if it gives any."""
        upstream = self.context.upstreams.get(prefill.backend)
        if upstream is None:  # a reload has just removed it
            return None
        place = _Place(self, prefill)
        prefill.load.begin()
        try:
            await place.granted_or_not
            return await self._ask(prefill, upstream, prompt_request(one_token(body)))
        except RequestError:
            return None
        finally:
            prefill.load.end()
            place.release()

    async def _ask(self, prefill: Candidate, upstream: Upstream, body: bytes) -> msgspec.Raw | None:
        context = self.context
        began = perf_counter()
        try:
            client = Client(upstream, upstream.timeouts.first_byte or _LONGEST_S)
            response = await client.request("POST", self.path, body)
        except (UpstreamError, Overloaded) as error:
            context.fleet.failed(prefill.backend, error.message)
            raise
        if response.status != 200:
            return None
        context.fleet.succeeded(prefill.backend)
        prefill.load.answered((perf_counter() - began) * 1000)
        return handed_over(response.body)


class _Place:
    """A place at the engine that reads the prompt, if it has a queue."""

    def __init__(self, job: HandOverJob, prefill: Candidate) -> None:
        self.granted_or_not: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slot: QueueSlot | None = None
        queue = job.context.queues.get(prefill.backend)
        if queue is None:
            self.granted()
        else:
            self._slot = QueueSlot(self, queue, job.request_id, prefill.replica, job.priority)
            self._slot.take()

    def granted(self) -> None:
        self.granted_or_not.set_result(None)

    def rejected(self, error: RequestError) -> None:
        self.granted_or_not.set_exception(error)

    def release(self) -> None:
        """Give it back."""
        if self._slot is not None:
            self._slot.release()
