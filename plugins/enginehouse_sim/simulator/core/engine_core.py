"""The engine core: it makes the steps of a scheduler, and returns outputs, without a real clock and without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.kv.connector import TransferWorker
from enginehouse_sim.simulator.model.runner import ModelRunner
from enginehouse_sim.simulator.model.timing import TOKEN, TimingRunner
from enginehouse_sim.simulator.scheduler.running import num_steady_steps, pass_steady_steps
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.steps.costs import StepLoad
from enginehouse_sim.simulator.steps.models import StepModel


class CoreStep:
    """A step of the core: the plan, and its load. ``ends_at``: on the core's clock.

    The core alone knows the ``result`` while the step is in flight. Then it has ``outputs``, and took ``seconds``.
    """

    __slots__ = ("ends_at", "load", "outputs", "result", "scheduled", "seconds")

    def __init__(self, scheduled: SchedulerOutput, result: ModelRunnerOutput, ends_at: float, load: StepLoad) -> None:
        self.scheduled = scheduled
        self.result = result
        self.ends_at = ends_at
        self.load = load
        self.outputs: Sequence[EngineCoreOutput] = ()
        self.seconds = 0.0


IDLE_STEP = 0.001
"""The most seconds of a step that could schedule no request: others may arrive meanwhile."""

_MOST_FORESEEN = 64
"""The most steps to foresee: a request that arrives meanwhile makes them worthless."""


class EngineCore:
    """Plans steps, executes them, and processes their results.

    ``now`` is its clock in seconds. Each step advances it by the step's duration; ``wait_until`` advances it while
    there is nothing to do. ``before_step`` gets the time before each step is planned. If the scheduler ``plans_ahead``,
    the core plans each step before it processes the result of the previous one. ``makes_text``: whether tokens have a
    meaning; else only their number matters. ``pace``: how many times as long as the step model says a step takes.
    """

    def __init__(
        self,
        scheduler: BatchScheduler,
        runner: ModelRunner | TimingRunner,
        steps: StepModel,
        *,
        pace: float = 1.0,
        transfer_worker: TransferWorker | None = None,
        before_step: Callable[[float], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.now = 0.0
        self._pace = self._usual_pace = pace
        self._transfer_worker = transfer_worker
        self.before_step = before_step
        self.makes_text = not isinstance(runner, TimingRunner)
        self._runner = runner
        self._steps = steps
        self._ahead = 2 if scheduler.state.plans_ahead else 1
        self._launched: deque[CoreStep] = deque()
        self._ends: list[float] = []  # of the steps in flight, and of those foreseen after them

    @property
    def has_work(self) -> bool:
        """Whether a step has work: requests to compute, or finished requests to report."""
        if self._is_computing:
            return True
        return self.has_requests or self.scheduler.has_finished_requests()

    @property
    def _is_computing(self) -> bool:
        return any(launched.scheduled.num_scheduled_tokens for launched in self._launched)

    @property
    def has_requests(self) -> bool:
        """Whether requests wait or run, or the engine still keeps blocks of finished requests."""
        state = self.scheduler.state
        return bool(state.requests or state.kept)

    def wait_until(self, now: float) -> None:
        """Let time pass in which no step made progress; ``now`` in the past does nothing."""
        late = now - self.now
        if late <= 0:
            return
        self.now = now
        for step in self._launched:
            step.ends_at += late

    def slow_down(self, factor: float) -> None:
        """Make each step that is launched from now on take ``factor`` times as long as usual."""
        self._pace = self._usual_pace * factor

    def step(self) -> CoreStep:
        self.begin_step()
        return self.end_step()

    def begin_step(self) -> float:
        """Launch a step if necessary. Return the seconds until the next result."""
        while len(self._launched) < self._ahead:
            self._launch()
        return max(0.0, self._launched[0].ends_at - self.now)

    def end_step(self) -> CoreStep:
        ended = self._launched.popleft()
        ended.seconds, self.now = ended.ends_at - self.now, ended.ends_at
        if self._transfer_worker is not None:
            self._transfer_worker.end_step(ended.ends_at, ended.result)
        ended.outputs = self.scheduler.update_from_output(ended.scheduled, ended.result)
        return ended

    def foresee(self) -> list[float]:
        """The ends of the next steps. All but the last one are steady, unless a request arrives or leaves.

        Call it after ``begin_step``. Only cores that make no text, and move no keys and values, foresee more than the
        steps in flight.
        """
        count = self._num_foreseen()
        self._ends = ends = [step.ends_at for step in self._launched]
        load = self._launched[-1].load
        decodes, active, total = load.decodes, load.active_kv_tokens, load.total_kv_tokens
        ends += self._steps.decode_ends(ends[-1], decodes, active, total, count, self._pace)
        return ends[: count + 1]

    def pass_steps(self, count: int) -> None:
        """Make the first ``count`` foreseen steps, each as ``end_step`` and ``begin_step`` would."""
        assert isinstance(self._runner, TimingRunner)
        self._runner.pass_steps(count)
        pass_steady_steps(self.scheduler.state, count, TOKEN)
        self.now = self._ends[count - 1]
        del self._ends[:count]
        first, last = self._launched[0].scheduled.step + count, self._launched[-1]
        self._launched = deque(
            CoreStep(
                self.scheduler.state.in_flight[step],
                last.result,
                ends_at,
                _later_load(last.load, step - last.scheduled.step),
            )
            for step, ends_at in enumerate(self._ends[: self._ahead], first)
        )

    def _num_foreseen(self) -> int:
        """The number of steady steps to come; 0 unless all requests decode in the steps in flight."""
        is_plain = not (self.before_step or self._transfer_worker)
        if not (is_plain and isinstance(self._runner, TimingRunner)):
            return 0
        running = [request.request_id for request in self.scheduler.state.running]
        for step in self._launched:
            if step.load.decodes != len(running) or step.load.prefill_tokens:
                return 0
            if list(step.scheduled.num_scheduled_tokens) != running:
                return 0
        return num_steady_steps(self.scheduler.state, _MOST_FORESEEN)

    def end_all_steps(self) -> None:
        """Process the results of all steps in flight at once."""
        while self._launched:
            self.end_step()

    def _launch(self) -> None:
        begins_at = self._launched[-1].ends_at if self._launched else self.now
        if self.before_step is not None:
            self.before_step(begins_at)
        scheduled = self.scheduler.schedule()
        result = self._runner.execute(scheduled)
        load = self._runner.load
        load.waiting = len(self.scheduler.state.waiting)
        ends_at = begins_at + self._seconds(scheduled, load, begins_at)
        self._launched.append(CoreStep(scheduled, result, ends_at, load))

    def _seconds(self, scheduled: SchedulerOutput, load: StepLoad, begins_at: float) -> float:
        """The step's duration.

        An empty step behind one that computes takes no time. Other empty steps, while there are requests, end when the
        next load arrives, after ``IDLE_STEP`` at the latest.
        """
        worker = self._transfer_worker
        if worker is not None:
            worker.begin_step(scheduled.kv_connector_metadata, begins_at)
        if scheduled.num_scheduled_tokens or not self.has_requests:
            return self._pace * self._steps.seconds(load)
        if not scheduled.preempted_req_ids and self._is_computing:
            return 0.0
        arrival = worker.next_arrival if worker is not None else None
        return IDLE_STEP if arrival is None else min(IDLE_STEP, max(0.0, arrival - begins_at))


def _later_load(load: StepLoad, steps: int) -> StepLoad:
    """The load after this number of ``steps``, in which all requests decode."""
    return StepLoad(
        decodes=load.decodes,
        active_kv_tokens=load.active_kv_tokens + steps * load.decodes,
        total_kv_tokens=load.total_kv_tokens,
    )
