"""Preemption: freeing the blocks of one running request for another."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.constants import SchedulingPolicy
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.step_plan import StepPlan


def preempt_one(state: SchedulerState, plan: StepPlan) -> RequestState:
    """Preempt the least urgent running request, and put it at the head of the waiting queue.

    Its tokens, drafts and encoder budget of this step become available again.
    """
    victim = _victim(state)
    state.running.remove(victim)
    plan.remove(victim)
    state.free_blocks(victim)
    victim.status = RequestStatus.PREEMPTED
    victim.num_preemptions += 1
    state.totals.num_preemptions += 1
    state.waiting.put_back(victim)
    plan.preempted.append(victim.request_id)
    return victim


def _victim(state: SchedulerState) -> RequestState:
    if state.constants.policy is SchedulingPolicy.PRIORITY:
        return max(state.running, key=lambda request: (request.priority, request.arrival_time))
    return state.running[-1]
