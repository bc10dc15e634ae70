"""Taking the blocks of one running request for another."""

from __future__ import annotations

from enginehouse_sim.scheduler.constants import SchedulingPolicy
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.scheduler.state import SchedulerState
from enginehouse_sim.scheduler.step_plan import StepPlan


def preempt_one(state: SchedulerState, plan: StepPlan) -> RequestState:
    """The least urgent running request loses its blocks and goes back to the front of those that wait.

    What it had of this step is given back.
    """
    victim = _victim(state)
    state.running.remove(victim)
    plan.give_back(victim)
    state.take_blocks(victim)
    victim.status = RequestStatus.PREEMPTED
    victim.num_preemptions += 1
    state.totals.num_preemptions += 1
    state.staging.put_back(victim)
    plan.preempted.append(victim.request_id)
    return victim


def _victim(state: SchedulerState) -> RequestState:
    last_first = reversed(state.running)
    if state.constants.policy is SchedulingPolicy.PRIORITY:
        return max(last_first, key=lambda request: (request.priority, request.arrival_time))
    return next(last_first)
