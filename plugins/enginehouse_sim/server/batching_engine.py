"""The engine that steps: every request that runs gets its part of each step."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from enginehouse import InvalidRequest
from enginehouse_sim.clock import Clock
from enginehouse_sim.core.engine_core import EngineCore, StepResult
from enginehouse_sim.grammar.grammar import grammar_of
from enginehouse_sim.scheduler.admission import never_fits
from enginehouse_sim.scheduler.outcome import stats
from enginehouse_sim.scheduler.output import EngineCoreOutput, SchedulerStats
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.scheduler.state import SchedulerState
from enginehouse_sim.server.engine import EngineFailed, Listener

_RECENT = 10.0
_MOST_RECENT = 4096
_TOKENS_IN_A_TURN = 32
_log = logging.getLogger(__name__)


class BatchingEngine:
    """Steps ``core`` as long as there are requests; what a step brings is handed out when its time has passed.

    Steps without a duration are not waited for, but everyone else gets a turn after a few tokens. A step ends early if
    nobody is left to wait for it. ``on_step`` is told of every step that has ended. ``num_updates`` grows with every
    change. ``failure`` says why nothing is served any more.
    """

    def __init__(self, core: EngineCore, clock: Clock) -> None:
        self.on_step: Callable[[StepResult], None] | None = None
        self.sleep_level = 0
        self.failure = ""
        self.num_updates = 0
        self._core = core
        self._clock = clock
        self._listeners: dict[str, Listener] = {}
        self._arrivals: deque[tuple[float, str]] = deque(maxlen=_MOST_RECENT)
        self._loop: asyncio.Task[None] | None = None

    @property
    def state(self) -> SchedulerState:
        """The scheduler's state, to be read only."""
        return self._core.scheduler.state

    def begin(self, request: RequestState, listener: Listener) -> None:
        """Let a request wait for its turn; while the engine sleeps, until it is woken."""
        if self.failure:
            raise EngineFailed(self.failure)
        self._check(request)
        request.arrival_time = self._clock.now()
        self._core.add_request(request)
        self._listeners[request.request_id] = listener
        self._arrivals.append((request.arrival_time, request.request_id))
        self.num_updates += 1
        self._go_on()

    def end(self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED) -> None:
        """End requests at once; if they were the last ones, the step under way ends with them."""
        for request_id in request_ids:
            self._listeners.pop(request_id, None)
        self._core.finish_requests(request_ids, status)
        self.num_updates += 1
        if not self._core.has_requests:
            self._stop()

    def abort(self, request_ids: Sequence[str]) -> None:
        """End requests at once, and tell who listens to them; unknown ones are no error."""
        listeners = {name: self._listeners[name] for name in request_ids if name in self._listeners}
        self.end(tuple(listeners))
        for request_id, listener in listeners.items():
            listener.take(EngineCoreOutput(request_id, (), "abort"), self._clock.now())

    def listener(self, request_id: str) -> Listener | None:
        """Who listens to a request that is here."""
        return self._listeners.get(request_id)

    def hand_out(self, request_id: str) -> tuple[RequestState, Listener]:
        """Take a request out without an ending: as it begins wherever it goes on, and who listens to it.

        Raises ``KeyError`` for an unknown one.
        """
        request, listener = self.state.requests[request_id].to_continue(), self._listeners[request_id]
        self.end((request_id,))
        return request, listener

    def knows(self, request_id: str) -> bool:
        """Whether this id is in use: by a request, or by what is left of one that ended."""
        state = self.state
        if request_id in state.requests or state.last_step_in_flight(request_id) >= 0:
            return True
        return bool(state.kv_cache.get_block_ids(request_id))

    def stats(self) -> SchedulerStats:
        """How busy it is now, and what it counted since its start."""
        return stats(self.state)

    def recent_requests(self) -> Sequence[str]:
        """Which requests came within the last ten seconds, or the latest of them if there were very many."""
        since = self._clock.now() - _RECENT
        return [request_id for arrival, request_id in self._arrivals if arrival >= since]

    def sleep(self, level: int) -> None:
        """Give memory back: requests are aborted, the KV cache is forgotten, and nothing runs until ``wake``."""
        listeners, self._listeners = self._listeners, {}
        self.sleep_level = level
        self.end(tuple(listeners))
        self._stop()
        self._core.scheduler.reset_prefix_cache()
        for request_id, listener in listeners.items():
            listener.take(EngineCoreOutput(request_id, (), "abort"), self._clock.now())

    def wake(self) -> None:
        """Run again, with whatever came while it slept."""
        self.sleep_level = 0
        self._go_on()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; ``False``, and nothing done, while blocks are in use."""
        return self._core.scheduler.reset_prefix_cache()

    def close(self) -> None:
        """Abort all requests and end all threads."""
        self._stop()
        self._core.shutdown()

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
                grammar_of(request.structured_output)
            except ValueError as error:
                raise InvalidRequest(str(error)) from None

    def _go_on(self) -> None:
        if self._loop is None and not self.sleep_level and self._core.has_requests:
            self._loop = asyncio.get_running_loop().create_task(self._run())

    def _stop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None
            self._core.end_all_steps()
            self._core.now = self._clock.now()

    async def _run(self) -> None:
        try:
            await self._make_steps()
        except Exception as error:
            self._fail(error)
        self._loop = None

    async def _make_steps(self) -> None:
        """Step after step. Lateness is made up for, but not more of it than one step."""
        core, clock = self._core, self._clock
        due = now = clock.now()
        tokens = 0
        while core.has_requests:
            began = due
            core.now = max(core.now, began)
            seconds = core.begin_step()
            due = max(began + seconds, now)
            if seconds > 0:
                await clock.sleep(due - now)
            result = core.end_step()
            now = clock.now()
            self._hand_out(result, began, now)
            tokens += len(result.scheduled.num_scheduled_tokens)
            if seconds <= 0 and tokens >= _TOKENS_IN_A_TURN:
                tokens = 0
                await asyncio.sleep(0)

    def _hand_out(self, result: StepResult, began: float, now: float) -> None:
        self.num_updates += 1
        listeners = self._listeners
        for new in result.scheduled.new_requests:
            listener = listeners.get(new.request_id)
            if listener is not None:
                listener.scheduled(began)
        for outputs in result.outputs.values():
            for output in outputs.outputs:
                listener = listeners.get(output.request_id)
                if listener is None:
                    continue
                if output.finish_reason is not None:
                    del listeners[output.request_id]
                listener.take(output, now)
        if self.on_step is not None:
            self.on_step(result)

    def _fail(self, error: Exception) -> None:
        _log.exception("the engine failed")
        self.failure = f"The engine failed: {type(error).__name__}: {error}"
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.fail(EngineFailed(self.failure))
