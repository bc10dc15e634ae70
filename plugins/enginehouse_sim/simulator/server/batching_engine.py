"""The engine core in real time, and the interfaces between it and the listeners to its requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from enginehouse import InvalidRequest, RequestError
from enginehouse_sim.simulator.core.engine_core import CoreStep, EngineCore
from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.model.grammar import valid_tokens
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.waiting import never_fits


class EngineFailed(RequestError):
    """The engine failed, and serves nothing until it is restarted."""


class RequestListener(Protocol):
    """Follows one request; times are seconds on the engine's clock."""

    def on_scheduled(self, now: float) -> None:
        """The first step of the request began."""

    def on_output(self, output: EngineCoreOutput, now: float) -> None:
        """A step made this output. It is the last one if it has a ``finish_reason``."""

    def on_error(self, error: RequestError) -> None:
        """The request failed; no output follows."""


class RequestLocation(Protocol):
    """Where a request runs: the engine here, or a migration that took it to another one."""

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED
    ) -> None:
        """Finish requests at once, and free their resources. No listener is called; unknown ids are ignored."""


class Followers:
    """Passes the events of a request on to its followers. It finishes when the last one leaves.

    ``location``: where the request runs. ``has_moved_in``: whether it came from another engine.
    """

    def __init__(self, request_id: str, location: RequestLocation, *, has_moved_in: bool = False) -> None:
        self.location = location
        self.has_moved_in = has_moved_in
        self._request_id = request_id
        self._followers: list[RequestListener] = []

    def join(self, follower: RequestListener) -> None:
        self._followers.append(follower)

    def leave(self, follower: RequestListener, status: RequestStatus = RequestStatus.FINISHED_ABORTED) -> None:
        """Pass no more events to ``follower``. If it was the last one, the request finishes with ``status``."""
        if follower in self._followers:
            self._followers.remove(follower)
            if not self._followers:
                self.location.finish_requests((self._request_id,), status)

    def on_scheduled(self, now: float) -> None:
        for follower in tuple(self._followers):
            follower.on_scheduled(now)

    def on_output(self, output: EngineCoreOutput, now: float) -> None:
        for follower in tuple(self._followers):
            follower.on_output(output, now)

    def on_error(self, error: RequestError) -> None:
        for follower in tuple(self._followers):
            follower.on_error(error)


class EngineClock(Protocol):
    """A monotonic clock in seconds."""

    def now(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class LoopClock:
    """Real time, finer than the clock of uvloop's event loop, which counts milliseconds."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


_RECENT = 10.0
_MOST_RECENT = 4096
_TOKENS_IN_A_TURN = 32
_log = logging.getLogger(__name__)


class BatchingEngine:
    """Steps ``core`` while it has requests, and delivers a step's outputs when the step's time has passed.

    The engine does not wait for a step of no duration, but lets other tasks run after every few tokens. A step ends
    early when its last request is finished. ``on_step`` gets the result of every step. ``num_updates`` grows with every
    change. ``failure``: the reason why the engine serves nothing any more; empty while it serves.
    """

    def __init__(self, core: EngineCore, clock: EngineClock) -> None:
        self.on_step: Callable[[CoreStep], None] | None = None
        self.sleep_level = 0
        self.failure = ""
        self.num_updates = 0
        self._core = core
        self.clock = clock
        self._listeners: dict[str, Followers] = {}
        self._recent: deque[tuple[float, str]] = deque(maxlen=_MOST_RECENT)
        self._loop: asyncio.Task[None] | None = None

    @property
    def state(self) -> SchedulerState:
        return self._core.scheduler.state

    def add_request(self, asked: EngineCoreRequest, listener: Followers) -> None:
        """Add a request. It waits while the engine sleeps.

        A request that comes with ``output_token_ids`` from another engine continues after them. Raises
        ``InvalidRequest`` for a request that can never run, and ``EngineFailed`` after a failure.
        """
        if self.failure:
            raise EngineFailed(self.failure)
        request = RequestState(msgspec.structs.replace(asked, arrival_time=self.clock.now()))
        self._check(request)
        self._core.scheduler.add_request(request)
        self._listeners[request.request_id] = listener
        self._recent.append((request.arrival_time, request.request_id))
        self.num_updates += 1
        self._start_loop()

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED
    ) -> None:
        """Finish requests at once. If they were the last ones, the step under way ends with them."""
        for request_id in request_ids:
            self._listeners.pop(request_id, None)
        self._core.scheduler.finish_requests(request_ids, status)
        self.num_updates += 1
        if not self._core.has_requests:
            self._stop_loop()

    def followers(self, request_id: str) -> Followers | None:
        return self._listeners.get(request_id)

    def detach_request(self, request_id: str) -> tuple[EngineCoreRequest, Followers]:
        """Remove a request without finishing it; return what another engine is asked, and its followers.

        Raises ``KeyError`` for an unknown id.
        """
        request, listener = self.state.requests[request_id].asked_now(), self._listeners[request_id]
        self.finish_requests((request_id,))
        return request, listener

    def is_known(self, request_id: str) -> bool:
        """Whether this id is in use: by a request, or by a step in flight or blocks of a finished one."""
        state = self.state
        if request_id in self._listeners or request_id in state.requests or state.last_step_in_flight(request_id) >= 0:
            return True
        return bool(state.kv_cache.get_block_ids(request_id))

    def recent_requests(self) -> Sequence[str]:
        """The requests that arrived in the last ten seconds, as Llumnix counts them; at most the latest 4096."""
        since = self.clock.now() - _RECENT
        return [request_id for arrival, request_id in self._recent if arrival >= since]

    def sleep(self, level: int) -> None:
        """Abort all requests, drop the KV cache, and run nothing until ``wake``."""
        listeners, self._listeners = self._listeners, {}
        self.sleep_level = level
        self.finish_requests(tuple(listeners))
        self._stop_loop()
        self._core.scheduler.reset_prefix_cache()
        for request_id, listener in listeners.items():
            listener.on_output(EngineCoreOutput(request_id, (), "abort"), self.clock.now())

    def wake(self) -> None:
        self.sleep_level = 0
        self._start_loop()

    def reset_prefix_cache(self) -> bool:
        """Drop all cached prefixes. Return ``False``, and do nothing, while blocks are in use."""
        return self._core.scheduler.reset_prefix_cache()

    def close(self) -> None:
        self._stop_loop()
        self._core.scheduler.shutdown()

    def _check(self, request: RequestState) -> None:
        if not request.prompt_token_ids:
            raise InvalidRequest("The prompt is empty: send one token at least")
        if never_fits(self.state, request):
            raise InvalidRequest(
                f"A prompt of {request.num_prompt_tokens} tokens can never run here: the KV cache holds "
                f"{self.state.constants.token_capacity} tokens. Shorten it, or start the engine with more blocks, "
                "more tokens in a step or chunked prefill"
            )
        if request.structured_output is not None:
            try:
                valid_tokens(request.structured_output)
            except ValueError as error:
                raise InvalidRequest(str(error)) from None

    def _start_loop(self) -> None:
        if self._loop is None and not self.sleep_level and self._core.has_requests:
            self._loop = asyncio.get_running_loop().create_task(self._run())

    def _stop_loop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None
            self._core.end_all_steps()
            self._core.wait_until(self.clock.now())

    async def _run(self) -> None:
        try:
            await self._make_steps()
        except Exception as error:
            self._fail(error)
        self._loop = None

    async def _make_steps(self) -> None:
        """Make steps. A late step shortens the next one, but no later ones."""
        core, clock = self._core, self.clock
        due = now = clock.now()
        tokens = 0
        while core.has_requests:
            began = due
            core.wait_until(began)
            seconds = core.begin_step()
            due = max(began + seconds, now)
            if seconds > 0:
                await clock.sleep(due - now)
            result = core.end_step()
            now = clock.now()
            self._deliver(result, began, now)
            tokens += len(result.scheduled.num_scheduled_tokens)
            if seconds <= 0 and tokens >= _TOKENS_IN_A_TURN:
                tokens = 0
                await asyncio.sleep(0)

    def _deliver(self, result: CoreStep, began: float, now: float) -> None:
        self.num_updates += 1
        listeners = self._listeners
        for new in result.scheduled.new_requests:
            listener = listeners.get(new.request_id)
            if listener is not None:
                listener.on_scheduled(began)
        for output in result.outputs:
            listener = listeners.get(output.request_id)
            if listener is None:
                continue
            if output.finish_reason is not None:
                del listeners[output.request_id]
            listener.on_output(output, now)
        if self.on_step is not None:
            self.on_step(result)

    def _fail(self, error: Exception) -> None:
        _log.exception("the engine failed")
        self.failure = f"The engine failed: {type(error).__name__}: {error}"
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.on_error(EngineFailed(self.failure))
