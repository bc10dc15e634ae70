"""The engine's core: requests in, steps, outputs by client; without a clock and without I/O."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from enginehouse_sim.scheduler.output import EngineCoreOutputs, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.scheduler.scheduler import BatchScheduler
from enginehouse_sim.scheduler.staging_thread import StagingThread
from enginehouse_sim.steps.load import StepLoad

IDLE_STEP = 0.001
"""Seconds until the next look at requests of which none could be scheduled."""


class StepRunner(Protocol):
    """Whoever carries a step out; ``load`` is what the last one had to do."""

    load: StepLoad

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """What the model made of the step."""


class StepModel(Protocol):
    """How long steps take."""

    def seconds(self, load: StepLoad) -> float:
        """The time of a step with this load."""


class StepResult(NamedTuple):
    """A step that is over: what was planned, what clients are told (by ``client_index``), how long it took, and why."""

    scheduled: SchedulerOutput
    outputs: Mapping[int, EngineCoreOutputs]
    seconds: float
    load: StepLoad


class Mover(Protocol):
    """The model runner's side of a connector: moves keys and values in and between steps. Times are in seconds."""

    @property
    def next_arrival(self) -> float | None:
        """When the next of them is there."""

    def begin_step(self, transfers: Any, now: float) -> float:
        """Begin what the connector wants moved; the time by which the step gets longer."""

    def end_step(self, transfers: Any, now: float, output: ModelRunnerOutput) -> None:
        """Tell in ``output`` what has arrived and left by ``now``."""


class _Launched(NamedTuple):
    scheduled: SchedulerOutput
    result: ModelRunnerOutput
    ends_at: float
    load: StepLoad


class EngineCore:
    """Plans steps, has them carried out, and takes in what comes of them.

    ``now`` is its clock, in seconds: each step moves it on by what the step takes, and whoever drives it may set it to
    a later time when nothing was there to do. ``before_step`` is called before each step is planned. With
    ``async_scheduling`` each step is planned before the outcome of the one before is taken in. Waiting requests are
    prepared while the model runs: between the two, or by a thread with ``staging_thread``.
    """

    def __init__(
        self,
        scheduler: BatchScheduler,
        runner: StepRunner,
        steps: StepModel,
        *,
        mover: Mover | None = None,
        before_step: Callable[[float], None] | None = None,
        staging_thread: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.now = 0.0
        self._mover = mover
        self.before_step = before_step
        self._runner = runner
        self._steps = steps
        self._ahead = 2 if scheduler.state.constants.async_scheduling else 1
        self._launched: deque[_Launched] = deque()
        self._lock: AbstractContextManager[Any] = nullcontext()
        self._staging_thread: StagingThread | None = None
        if staging_thread:
            self._lock = lock = threading.Lock()
            self._staging_thread = StagingThread(scheduler.staging, lock)

    def add_request(self, request: RequestState) -> None:
        """A new request waits for its turn. Raises ``ValueError`` for an id that is in use."""
        with self._lock:
            self.scheduler.add_request(request)

    def abort_requests(self, request_ids: Sequence[str]) -> None:
        """Requests end at once, without further outputs; unknown ones are no error."""
        self.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def finish_requests(self, request_ids: Sequence[str], status: RequestStatus) -> None:
        """Requests end for a reason that only the caller knows, such as a stop string."""
        with self._lock:
            self.scheduler.finish_requests(request_ids, status)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything: for requests, or for what is left of those that ended."""
        if any(launched.scheduled.num_scheduled_tokens for launched in self._launched):
            return True
        return self.has_requests or self.scheduler.has_finished_requests()

    @property
    def has_requests(self) -> bool:
        """Whether requests wait or run, or blocks of such that ended are still to be sent."""
        state = self.scheduler.state
        return bool(state.requests or state.transfers.num_kept)

    def step(self) -> StepResult:
        """One step to its end."""
        self.begin_step()
        return self.end_step()

    def begin_step(self) -> float:
        """Plan a step if none is under way; the seconds that the one which ends next takes from its beginning."""
        while len(self._launched) < self._ahead:
            self._launch()
        return max(0.0, self._launched[0].ends_at - self.now)

    def end_step(self) -> StepResult:
        """Take in the outcome of the step that ends next."""
        scheduled, result, ends_at, load = self._launched.popleft()
        seconds, self.now = ends_at - self.now, ends_at
        if self._mover is not None:
            self._mover.end_step(scheduled.kv_connector_metadata, ends_at, result)
        with self._lock:
            outputs = self.scheduler.update_from_output(scheduled, result)
        return StepResult(scheduled, outputs, seconds, load)

    def end_all_steps(self) -> None:
        """Take in what is under way at once, for there is nobody left to tell."""
        while self._launched:
            self.end_step()

    def shutdown(self) -> None:
        """Abort all requests and end all threads."""
        if self._staging_thread is not None:
            self._staging_thread.stop()
        self.scheduler.shutdown()

    def _launch(self) -> None:
        begins_at = self._launched[-1].ends_at if self._launched else self.now
        with self._lock:
            if self.before_step is not None:
                self.before_step(begins_at)
            scheduled = self.scheduler.schedule()
        self._stage()
        result = self._runner.execute(scheduled)
        load = self._runner.load
        ends_at = begins_at + self._seconds(scheduled, load, begins_at)
        self._launched.append(_Launched(scheduled, result, ends_at, load))

    def _seconds(self, scheduled: SchedulerOutput, load: StepLoad, begins_at: float) -> float:
        """How long the step takes; one with nothing to compute lasts until something arrives."""
        stall = 0.0
        if self._mover is not None:
            stall = self._mover.begin_step(scheduled.kv_connector_metadata, begins_at)
        if scheduled.num_scheduled_tokens or not self.has_requests:
            return stall + self._steps.seconds(load)
        arrival = self._mover.next_arrival if self._mover is not None else None
        return stall + (IDLE_STEP if arrival is None else max(0.0, arrival - begins_at))

    def _stage(self) -> None:
        if self._staging_thread is not None:
            self._staging_thread.wake()
        else:
            self.scheduler.staging.prepare()
