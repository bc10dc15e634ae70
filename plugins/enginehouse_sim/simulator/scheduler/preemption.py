"""Preemption: freeing the blocks of one running request for another."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.policies import checked_index
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.step_plan import StepPlan


def preempt_one(state: SchedulerState, plan: StepPlan) -> RequestState:
    """Preempt the least urgent running request, and put it at the head of the waiting queue.

    Its tokens, drafts and encoder budget of this step become available again.
    """
    victim = state.running.pop(_victim(state))
    plan.remove(victim)
    state.free_blocks(victim)
    victim.status = RequestStatus.PREEMPTED
    victim.num_preemptions += 1
    state.totals.num_preemptions += 1
    state.waiting.put_back(victim)
    plan.preempted.append(victim.request_id)
    return victim


def _victim(state: SchedulerState) -> int:
    if not state.chooses_victims:
        return len(state.running) - 1
    index = state.policy.victim(state.running)
    return checked_index(state.policy, "victim", index, len(state.running))
