"""The scheduler with vLLM's semantics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse_sim.scheduler.advance import Advance, ParallelAdvance, advance
from enginehouse_sim.scheduler.constants import SchedulerConstants
from enginehouse_sim.scheduler.finishing import let_go
from enginehouse_sim.scheduler.interfaces import (
    KvCacheManager,
    KvConnector,
    RequestCounts,
    Scheduler,
    StructuredOutputManager,
)
from enginehouse_sim.scheduler.outcome import forget, take_in
from enginehouse_sim.scheduler.output import EngineCoreOutputs, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.scheduler.pausing import drop_blocks, pause, resume
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.scheduler.running_phase import schedule_running
from enginehouse_sim.scheduler.staging import Staging
from enginehouse_sim.scheduler.state import SchedulerState
from enginehouse_sim.scheduler.step_output import advance_computed, step_output
from enginehouse_sim.scheduler.step_plan import StepPlan
from enginehouse_sim.scheduler.waiting_phase import schedule_waiting


class BatchScheduler(Scheduler):
    """Continuous batching: in each step those that run go on, and those that wait fill what is left.

    ``update_workers``: threads that take in a step's outcome; 0 does it in the caller's.
    """

    def __init__(
        self,
        constants: SchedulerConstants,
        kv_cache: KvCacheManager,
        connector: KvConnector | None = None,
        grammars: StructuredOutputManager | None = None,
        *,
        update_workers: int = 0,
    ) -> None:
        self.state = SchedulerState(constants, kv_cache, connector, grammars)
        self._parallel = ParallelAdvance(update_workers) if update_workers else None
        self._advance: Advance = self._parallel or advance

    @property
    def staging(self) -> Staging:
        """The requests that wait, and the worker that prepares them."""
        return self.state.staging

    def add_request(self, request: RequestState) -> None:
        """Let it wait for its turn. Raises ``ValueError`` for an id that is in use."""
        state = self.state
        if request.request_id in state.requests:
            raise ValueError(f"request {request.request_id!r} exists already: give each request an id of its own")
        longest = request.num_prompt_tokens + request.max_tokens
        request.max_num_tokens = min(longest, state.constants.max_model_len)
        if request.structured_output is not None and state.grammars is not None:
            state.grammars.grammar_init(request)
            request.status = RequestStatus.WAITING_FOR_FSM
        state.requests[request.request_id] = request
        state.staging.add(request)

    def schedule(self) -> SchedulerOutput:
        """Plan the next step; may be called again before the outcome of the step before is known."""
        state = self.state
        constants = state.constants
        plan = StepPlan(state.next_step, constants.token_budget, constants.max_num_encoder_input_tokens)
        schedule_running(state, plan)
        schedule_waiting(state, plan)
        output = step_output(state, plan)
        state.kv_cache.publish_events()
        advance_computed(state, plan)
        state.in_flight[plan.step] = output
        state.next_step += 1
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> Mapping[int, EngineCoreOutputs]:
        """Take in what a step made; steps come in the order in which they were planned."""
        return take_in(self.state, self._advance, scheduler_output, model_runner_output)

    def finish_requests(self, request_ids: Sequence[str], status: RequestStatus) -> None:
        """End requests from outside, wherever they are; unknown ones are no error. Clients get no output for them."""
        requests = self.state.requests
        ending = [requests[request_id] for request_id in dict.fromkeys(request_ids) if request_id in requests]
        for request in ending:
            request.status = status
        forget(self.state, ending)
        for request in ending:
            let_go(self.state, request)

    def pause(self, request_id: str, *, keep_blocks: bool) -> None:
        """A running request rests until ``resume``; without its blocks, it will be admitted anew."""
        pause(self.state, request_id, keep_blocks=keep_blocks)

    def drop_blocks(self, request_id: str) -> None:
        """A paused request loses the blocks that it kept."""
        drop_blocks(self.state, request_id)

    def resume(self, request_id: str) -> bool:
        """A paused request goes on: at its place if it kept its blocks, else from the head of those that wait.

        ``False``, and nothing done, if it kept its blocks and ``max_num_seqs`` requests run.
        """
        return resume(self.state, request_id)

    def get_request_counts(self) -> RequestCounts:
        """How many run, wait and are paused."""
        state = self.state
        return RequestCounts(len(state.running), len(state.staging), len(state.paused))

    def has_finished_requests(self) -> bool:
        """Whether requests ended that no step has told the model runner of yet."""
        return self.state.endings.untold

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; ``False``, and nothing cached forgotten, while blocks are in use."""
        self.state.staging.drop_all()
        return self.state.kv_cache.reset_prefix_cache()

    def shutdown(self) -> None:
        """Abort all requests, free all blocks and end all threads."""
        self.finish_requests(tuple(self.state.requests), RequestStatus.FINISHED_ABORTED)
        self.state.transfers.free_kept()
        if self._parallel is not None:
            self._parallel.shutdown()

    def get_kv_connector(self) -> KvConnector | None:
        """The connector, if there is one."""
        return self.state.connector
