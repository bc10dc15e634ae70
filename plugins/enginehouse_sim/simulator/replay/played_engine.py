"""One engine core on the clock of a replay, and the replay of a trace on it, without a gateway."""

from __future__ import annotations

import gc
import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.core.migration import MAX_MIGRATIONS, MigratedKv, MigrationSlots
from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.domain.outputs import SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.model.timing import TOKEN
from enginehouse_sim.simulator.replay.answer import AnswerRecord, count_gap
from enginehouse_sim.simulator.replay.report import InstanceRecord, Moment, Record, Slo
from enginehouse_sim.simulator.replay.traces.prompts import block_hashes_of, prompt_of
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.simulator.scheduler.running import usage_after
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.waiting import never_fits
from enginehouse_sim.simulator.steps.profile import NOTHING_OUTSIDE, OutsideCosts


class EngineOwner:
    """Follows the engines of a replay.

    ``place``: the time that the replay has reached, and a rank among the events at that time. The rank of a step's end
    is the index of its engine.
    """

    def __init__(self) -> None:
        self.place = (0.0, -1.0)

    def due_sooner(self, index: int) -> None:
        """The engine number ``index`` is due earlier than it was, because a request came or went."""


class PlayedEngine:
    """Runs requests on an engine core, and records their tokens.

    The owner calls ``begin_step`` while the engine is ``busy``, and ``end_step`` at the time ``due``. After
    ``look_ahead``, it need not call them for steady steps (``scheduler/running.py``): the engine makes those up to the
    owner's ``place`` when its state is read or changed. ``migrated_kv``: the core's source of KV for requests that come
    with it. ``slots``: those of migrations under way.
    """

    def __init__(
        self, name: str, core: EngineCore, record: Record, owner: EngineOwner, migrated_kv: MigratedKv | None = None
    ) -> None:
        self.slots = MigrationSlots(core.scheduler.state.constants.token_capacity)
        self._migrated_kv = migrated_kv
        self.instance = InstanceRecord(name)
        self.index = len(record.instances)
        self.is_stepping = self.is_stalled = False
        self._core = core
        self._record = record
        self._gaps = record.gaps
        self._live: dict[str, AnswerRecord] = {}
        self._owner = owner
        self._foreseen: list[float] = []  # ends of steady steps that are not made yet
        self._is_even = False  # whether each request is known to have an output in the last step
        self.due = math.inf
        self._last_end = -1.0
        record.instances.append(self.instance)

    @property
    def busy(self) -> bool:
        return bool(self._live)

    @property
    def state(self) -> SchedulerState:
        """The scheduler's state now, read-only."""
        self.catch_up()
        return self._core.scheduler.state

    @property
    def now(self) -> float:
        """The engine's clock in seconds: the end of its last step, or a later arrival while it was idle."""
        return self._core.now

    def wanted(
        self, asked: TraceRequest, number: int, at: float, *, id: str = "", made: int = 0, max_tokens: int | None = None
    ) -> RequestState | None:
        """The engine's form of request ``number`` of the trace; ``None`` if it can never run here.

        ``id``: by default the number. ``made``: how many tokens of the answer other engines have made. ``max_tokens``:
        by default those of the trace.
        """
        state = self._core.scheduler.state
        constants = state.constants
        most = max(1, asked.output_length if max_tokens is None else max_tokens)
        if asked.input_length + made + most > constants.max_model_len:
            return None
        prompt = prompt_of(asked, number) if self._core.makes_text else [0] * asked.input_length
        wanted = RequestState(
            EngineCoreRequest(
                request_id=id or str(number),
                prompt_token_ids=prompt + [TOKEN] * made,
                max_tokens=most,
                ignore_eos=True,
                arrival_time=at,
            )
        )
        if never_fits(state, wanted):
            return None
        wanted.block_hashes = block_hashes_of(asked, number, constants.block_size)
        return wanted

    def attach(self, wanted: RequestState, request: AnswerRecord, at: float, copied: int = 0) -> None:
        """Add a request. The KV of its first ``copied`` tokens has been copied here from another engine."""
        if copied:
            assert self._migrated_kv is not None
            self._migrated_kv.expect(wanted.request_id, copied)
        self._interrupt()
        self._is_even = False
        if not self._live and not self.is_stepping:
            self._core.wait_until(at)
        self._live[wanted.request_id] = request
        self._core.scheduler.add_request(wanted)

    def detach(self, request_id: str, id: str) -> tuple[RequestState, AnswerRecord]:
        """Remove a request without finishing it; return it, ready for another engine under ``id``, and its record."""
        self._interrupt()
        state = self.state.requests[request_id]
        detached = RequestState(replace(state.asked_now(), request_id=id))
        detached.block_hashes = list(state.block_hashes)  # all made-up tokens are equal, so new hashes would be too
        return detached, self.abort(request_id)

    def abort(self, request_id: str) -> AnswerRecord:
        self._interrupt()
        self._core.scheduler.finish_requests((request_id,))
        return self._live.pop(request_id)

    def kill(self) -> None:
        """Remove all requests, as the end of a process does, and with them what has stalled it."""
        for request_id in list(self._live):
            self.abort(request_id)
        self._core.end_all_steps()
        self.is_stepping = self.is_stalled = False
        self.restart()

    def slow_down(self, factor: float) -> None:
        self._interrupt()
        self._core.slow_down(factor)

    def stall(self) -> None:
        """Make no progress until ``resume``."""
        self._interrupt()
        self.is_stalled = True
        self.due = math.inf

    def resume(self, now: float) -> None:
        """Make progress again, if it is stalled. The step in flight takes its whole time from ``now`` on."""
        if not self.is_stalled:
            return
        self.is_stalled = False
        self._core.wait_until(now)
        if self.is_stepping:
            self.due = self._core.now + self._core.begin_step()
            self._owner.due_sooner(self.index)

    def refuses(self, request: RequestState) -> bool:
        """Whether a llumlet here would refuse a request of another engine, for lack of room."""
        state = self.state
        return (
            self.slots.incoming.requests >= MAX_MIGRATIONS
            or len(state.waiting) > 0
            or len(state.running) >= state.constants.max_num_seqs
            or -(-request.num_tokens // state.constants.block_size) + 1 > state.kv_cache.num_free_blocks
        )

    def has(self, request_id: str) -> bool:
        return request_id in self._live

    def answer(self, request_id: str) -> AnswerRecord | None:
        """The answer to a live request; ``None`` if it has ended, or if it only reads ahead."""
        answer = self._live.get(request_id)
        return None if answer is None or answer.is_ahead else answer

    def begin_step(self) -> None:
        """Begin a step, at whose end the engine is ``due``."""
        self.due = self._core.now + self._core.begin_step()
        self.is_stepping = True

    def look_ahead(self) -> None:
        """After ``begin_step``, be ``due`` at the end of the first step that is not steady."""
        if self._is_even or all(request.last_token == self._last_end for request in self._live.values()):
            self._foreseen = self._core.foresee()
            self.due = self._foreseen.pop()

    def catch_up(self) -> None:
        """Make the steady steps that end before the owner's place."""
        if self._foreseen and (count := self._num_due()):
            self._pass_steps(count)

    def _num_due(self) -> int:
        """The number of foreseen steps that end before the owner's place."""
        time, rank = self._owner.place
        return (bisect_right if self.index < rank else bisect_left)(self._foreseen, time)

    def end_step(self) -> SchedulerOutput:
        """End the step in flight. After ``catch_up``, it is the first one that has not ended at the owner's place."""
        self._foreseen = []
        core, record, live = self._core, self._record, self._live
        ended = core.end_step()
        scheduled, outputs = ended.scheduled, ended.outputs
        now, last_end = core.now, self._last_end
        self._last_end = now
        self._count(scheduled, ended.seconds)
        regular = 0  # requests that also had an output in the step before: nearly all
        self._is_even = len(outputs) == len(live)
        for output in outputs:
            request = live.get(output.request_id)
            if request is None:
                continue  # its client has left in this very moment
            known = request.output_tokens
            if request.is_unread:
                pass
            elif known and request.last_token == last_end:
                regular += 1
            elif known:
                count_gap(self._gaps, now - request.last_token, 1)
                if request.has_moved:
                    request.has_moved = False
                    record.move_gaps.append(now - request.last_token)
            else:
                request.first_token = now
                if not request.is_read:
                    request.cached_tokens = output.num_cached_tokens
            request.last_token = now
            request.output_tokens = known + len(output.new_token_ids)
            if not known:
                request.has_first_token()
            if output.finish_reason is not None:
                self._end(output.request_id)
        if regular:
            count_gap(self._gaps, now - last_end, regular)
        if not live:
            core.end_all_steps()
        self.is_stepping = False
        return scheduled

    def restart(self) -> None:
        self._core.scheduler.reset_prefix_cache()

    def close(self) -> None:
        self._core.scheduler.shutdown()

    def count_requests(self) -> int:
        """The requests that run or wait. Notes the share of blocks in use.

        No steady step changes the number of requests or preempts one. So those that have ended need not be made.
        """
        state = self._core.scheduler.state
        kv_use = usage_after(state, self._num_due() if self._foreseen else 0)
        self.instance.peak_kv_use = max(self.instance.peak_kv_use, kv_use)
        return len(state.running) + len(state.waiting)

    def _interrupt(self) -> None:
        """Drop the foreseen steps: only the step in flight ends as planned."""
        self.catch_up()
        if self._foreseen:
            self.due, self._foreseen = self._foreseen[0], []
            self._owner.due_sooner(self.index)

    def _pass_steps(self, count: int) -> None:
        ends, self._foreseen = self._foreseen[:count], self._foreseen[count:]
        self._core.pass_steps(count)
        instance, gaps, batch, last_end = self.instance, self._gaps, len(self._live), self._last_end
        read, busy, end = batch, instance.busy, ends[-1]
        for request in self._live.values():
            read -= request.is_unread
            request.last_token = end
            request.output_tokens += count
        for end in ends:
            busy += end - last_end
            if read:
                count_gap(gaps, end - last_end, read)
            last_end = end
        instance.busy = busy
        instance.steps += count
        instance.batches += count * batch
        self._last_end = last_end

    def _count(self, scheduled: SchedulerOutput, seconds: float) -> None:
        instance, batch = self.instance, len(scheduled.num_scheduled_tokens)
        instance.steps += 1
        instance.batches += batch
        instance.preemptions += len(scheduled.preempted_req_ids)
        if batch:
            instance.busy += seconds

    def _end(self, request_id: str) -> None:
        request, instance = self._live.pop(request_id, None), self.instance
        if request is None:  # its client left when it had its first token
            return
        if not request.is_ahead:
            instance.requests += 1
            instance.input_tokens += request.input_length
            instance.cached_tokens += request.cached_tokens
            instance.output_tokens += request.output_tokens
        request.has_last_token()


def moment_of(engines: list[PlayedEngine]) -> Moment:
    """The requests at ``engines`` now."""
    counts = [engine.count_requests() for engine in engines]
    return Moment(sum(counts), max(counts, default=0))


_ALLOCATIONS = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run rarely: a replay makes few cycles, and has many objects to examine.

    It never examines what was there before, such as all modules.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


TOO_LONG = "invalid_request"
"""The error code of a request that its engine refuses."""


class _RecordedAnswer(AnswerRecord):
    record: Record

    def has_last_token(self) -> None:
        self.record.finish(self)


class Replay(EngineOwner):
    """Adds requests to one engine. Each step takes as long as the core's step model says.

    ``outside``: how long requests take from their arrival to the engine.

    ``record`` is complete after ``run``, or when ``steps`` is exhausted.
    """

    def __init__(
        self,
        trace: Iterable[TraceRequest],
        core: EngineCore,
        slo: Slo | None = None,
        outside: OutsideCosts = NOTHING_OUTSIDE,
    ) -> None:
        super().__init__()
        self.record = Record(slo=slo)
        self._arrivals = entering(trace, outside)
        self._next = next(self._arrivals, None)
        self._engine = PlayedEngine("engine", core, self.record, self)

    @property
    def now(self) -> float:
        return self._engine.now

    def run(self) -> Record:
        """Run the whole trace."""
        with rare_collections():
            for _ in self._steps(looks_ahead=True):
                pass
        return self.record

    def steps(self) -> Iterator[SchedulerOutput]:
        """Make the steps one by one, and yield the plan of each."""
        return self._steps(looks_ahead=False)

    def _steps(self, *, looks_ahead: bool) -> Iterator[SchedulerOutput]:
        """Make the steps, and yield their plans; with ``looks_ahead``, not those of steady steps."""
        engine, moments = self._engine, self.record.moments
        while self._next is not None or engine.busy:
            if self._next is not None and (not engine.busy or self._next[0] <= engine.now):
                self._admit(*self._next)
                self._next = next(self._arrivals, None)
                continue
            engine.begin_step()
            if looks_ahead:
                engine.look_ahead()
                arrival = self._next[0] if self._next is not None else math.inf
                self.place = (min(arrival, moments.due), -1.0)
                engine.catch_up()
            yield engine.end_step()
            if engine.now >= moments.due:
                moments.add(engine.now, moment_of([engine]))
        self.record.ended = engine.now
        engine.close()

    def _admit(self, at: float, number: int, asked: TraceRequest) -> None:
        wanted = self._engine.wanted(asked, number, at)
        if wanted is None:
            self.record.reject(TOO_LONG)
            return
        request = _RecordedAnswer(asked.arrival, asked.input_length)
        request.record = self.record
        self._engine.attach(wanted, request, at)


def entering(trace: Iterable[TraceRequest], outside: OutsideCosts) -> Iterator[tuple[float, int, TraceRequest]]:
    """The requests in the order in which the engine gets them: the time, the number in the trace, and the request."""
    waiting: list[tuple[float, int, TraceRequest]] = []
    least = outside.seconds(0)
    for number, request in enumerate(trace):
        while waiting and waiting[0][0] <= request.arrival + least:
            yield heapq.heappop(waiting)
        heapq.heappush(waiting, (request.arrival + outside.seconds(request.input_length), number, request))
    while waiting:
        yield heapq.heappop(waiting)
