"""The requests of an engine that a llumlet chooses from."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import RequestView
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.state import SchedulerState


def movable_requests(state: SchedulerState) -> Sequence[RequestView]:
    """The running requests in the order of their arrival, then the waiting requests in the order of the queue."""
    running = sorted(state.running, key=lambda request: request.arrival_time)
    return [
        *(_view(request, running=True) for request in running),
        *(_view(request, running=False) for request in state.waiting),
    ]


def _view(request: RequestState, *, running: bool) -> RequestView:
    output = len(request.output_token_ids)
    return RequestView(
        id=request.request_id, prompt_tokens=request.num_tokens - output, output_tokens=output, running=running
    )
