"""The request to the engine that reads the prompt for another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from enginehouse.aio.timeouts import leave
from enginehouse.domain.errors import EnginehouseError, RequestError, UpstreamError, UpstreamTimeout
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate, Route
from enginehouse.interfaces.drivers import EngineResponse
from enginehouse.interfaces.hand_overs import PrefillEngine
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.upstream.client import Client
from enginehouse.routing.body.rewrite import replace_model
from enginehouse.telemetry.plugin_failures import await_plugin, plugin_failed, wrong_result

T = TypeVar("T")

_LONGEST_S = 3600.0
"""The time limit of an engine that has none."""
_TIMEOUT_S = 5.0
"""The time limit of a question to an engine."""


async def prepare_pair(
    job: Job, route: Route, body: bytes, lost: Callable[[RequestError], None]
) -> tuple[bytes, PrefillSlot | None]:
    """Have the plugin of hand-overs prepare the request of ``job`` along ``route``, which has two engines.

    Returns the body for the engine that answers, and the slot at the other one, if something goes on there meanwhile.
    ``lost`` is called with the error of an engine that fails then. Raises ``RequestError``.
    """
    found = job.context.router.hand_over
    assert found is not None
    assert route.prefill is not None
    plugin, hand_over = found
    slot, go_on = PrefillSlot(job, route.prefill), None
    try:
        made = await _in_time(slot, _step(plugin, hand_over.prepare, slot, route, body))
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], bytes)):
            raise wrong_result(plugin, "returned no body, and what goes on, from prepare")
        asked, go_on = made
    finally:
        if go_on is None:
            slot.release()
    if go_on is not None:
        slot.go_on(_step(plugin, go_on), lost)
    return asked, slot if go_on is not None else None


async def _step(plugin: PluginId, method: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """As ``await_plugin``, but only a ``RequestError`` passes: any other one says nothing to the client."""
    try:
        return await await_plugin(plugin, method, *arguments)
    except RequestError:
        raise
    except EnginehouseError as error:
        raise plugin_failed(plugin, error) from error


async def _in_time(slot: PrefillSlot, preparing: Coroutine[Any, Any, T]) -> T:
    """What ``preparing`` returns. Raises ``UpstreamTimeout`` if it takes too long, besides its wait for ``slot``."""
    limit = 2 * slot.longest  # its question to the engine has that limit, too
    task = asyncio.ensure_future(preparing)
    try:
        while not (await asyncio.wait({task}, timeout=limit))[0]:
            if not slot.waited:
                raise UpstreamTimeout(f"The prompt was not read at backend '{slot.backend}' within {limit:g} s")
            slot.waited = slot.waits
        return task.result()
    finally:
        leave(task)
        del task  # a failure refers to this frame


class PrefillSlot(PrefillEngine):
    """The engine of ``candidate``, of whose load it has a share, and a slot of its queue if it has one.

    Call ``release`` or ``go_on`` once. The queue may still grant or refuse the slot of a request that was cancelled in
    the same step of the event loop. ``longest``: the seconds that an answer of its engine may take. ``waited``: in the
    queue, since this was last reset.
    """

    waited = False

    def __init__(self, job: Job, candidate: Candidate) -> None:
        self.path = job.engine_path
        self.drivers = job.context.drivers
        self._job = job
        self._candidate = candidate
        self._granted: asyncio.Future[None] | None = None
        self._slot: QueueSlot | None = None
        self._task: asyncio.Task[None] | None = None
        self._may_take = True
        self.backend = candidate.backend
        upstream = job.context.upstreams.get(candidate.backend)
        limits = upstream.limits.get(candidate.model, upstream.timeouts) if upstream is not None else None
        self.longest = (limits.first_byte if limits is not None else 0.0) or _LONGEST_S
        candidate.load.begin()

    @property
    def waits(self) -> bool:
        """Whether it waits in the queue."""
        return self._granted is not None

    async def take(self) -> None:
        context, candidate = self._job.context, self._candidate
        if not self._may_take:  # nothing would give a second slot back
            raise RuntimeError("take must be called once, while the request is prepared")
        self._may_take = False
        upstream = context.upstreams.get(candidate.backend)
        if upstream is None:  # a reload has just removed it
            raise UpstreamError(f"The configuration no longer has backend '{candidate.backend}'")
        queue = context.queue_of(candidate)
        if queue is not None:
            self._granted, self.waited = asyncio.get_running_loop().create_future(), True
            self._slot = QueueSlot(self, queue, self._job.ticket(candidate.replica, queue.now(), waits=False))
            try:
                self._slot.take()
                await self._granted
            finally:
                self._granted = None  # a refusal refers to this frame, and the future to the refusal
        self._upstream = upstream
        self.host, self.process = upstream.pool.origin.host, upstream.pool
        self.client = Client(upstream, _TIMEOUT_S)

    def granted(self) -> None:
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(None)

    def rejected(self, error: RequestError) -> None:
        if self._granted is not None and not self._granted.done():
            self._granted.set_exception(error)

    async def ask(self, body: bytes) -> EngineResponse:
        context, candidate, upstream = self._job.context, self._candidate, self._upstream
        body = replace_model(body, candidate.name_there or candidate.model)
        began = context.clock.now()
        try:
            client = Client(upstream, self.longest)
            response = await client.request("POST", self.path, self._job.ranked(upstream, body))
        except (UpstreamError, UpstreamTimeout) as error:
            self.failed(error.message)
            raise
        if response.status == 200:
            context.fleet.succeeded(candidate.backend)
            context.fleet.answered(candidate.load, (context.clock.now() - began) * 1000)
        return response

    def failed(self, why: str) -> None:
        self._job.context.fleet.failed(self._candidate.backend, why)

    def go_on(self, steps: Coroutine[Any, Any, None], lost: Callable[[RequestError], None]) -> None:
        """Take ``steps``, then ``release`` it. ``lost`` is called with a ``RequestError`` that they raise."""

        def end(task: asyncio.Task[None]) -> None:
            self.release()
            error = None if task.cancelled() else task.exception()
            if self._task is not None and isinstance(error, RequestError):
                lost(error.with_traceback(None))

        self._task = asyncio.ensure_future(steps)
        self._task.add_done_callback(end)

    def cancel(self) -> None:
        """Abort what goes on: nothing depends on it any more. Later calls do nothing."""
        task = self._task
        self._task = None  # it may have failed in this very step, so that ``end`` is about to be called
        if task is not None:
            task.cancel()

    def release(self) -> None:
        """Give it back."""
        self._may_take = False
        self._candidate.load.end()
        slot, self._slot = self._slot, None  # which refers to this
        if slot is not None:
            slot.release()
