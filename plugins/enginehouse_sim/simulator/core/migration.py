"""What engines need to move requests with their keys and values, whatever carries the messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from enginehouse.rescheduling import RequestView
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.connector import KvSource
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.steps.costs import KvTransfer

MAX_MIGRATIONS = 4
"""The most migrations under way in each direction."""


class SlotsOneWay:
    """Migrations in one direction; lengths in tokens."""

    def __init__(self) -> None:
        self.requests = 0
        self.tokens = 0

    @contextmanager
    def occupy(self, num_tokens: int) -> Iterator[None]:
        self.requests += 1
        self.tokens += num_tokens
        try:
            yield
        finally:
            self.requests -= 1
            self.tokens -= num_tokens


class MigrationSlots:
    """The migrations of one engine in both directions; its KV cache holds ``capacity`` tokens."""

    def __init__(self, capacity: int) -> None:
        self.incoming = SlotsOneWay()
        self.outgoing = SlotsOneWay()
        self._capacity = capacity

    def figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        for name, direction in (("in", self.incoming), ("out", self.outgoing)):
            left = max(0, self._capacity - direction.tokens)
            figures |= {
                f"num_migrate_{name}_reqs": direction.requests,
                f"num_available_migrate_{name}_slots": MAX_MIGRATIONS - direction.requests,
                f"num_migrate_{name}_tokens": direction.tokens,
                f"num_available_migrate_{name}_tokens": left,
                f"kv_cache_usage_ratio_migrate_{name}": direction.tokens / self._capacity,
                f"available_kv_cache_usage_ratio_migrate_{name}": left / self._capacity,
            }
        return figures


class MigratedKv(KvSource):
    """Keeps the copied tokens of a request until they are in its blocks."""

    def __init__(self) -> None:
        self._num_tokens: dict[str, int] = {}

    def expect(self, request_id: str, num_tokens: int) -> None:
        """Note that the first ``num_tokens`` of a request that is about to start here have been copied."""
        self._num_tokens[request_id] = num_tokens

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        return max(0, self._num_tokens.get(request.request_id, 0) - num_computed_tokens)

    def seconds(self, num_tokens: int) -> float:
        """0, because the migration has copied the tokens before."""
        return 0.0

    def claim(self, request: RequestState, num_tokens: int) -> None:
        if not num_tokens:
            self._num_tokens.pop(request.request_id, None)

    def delivered(self, request_id: str) -> None:
        self._num_tokens.pop(request_id, None)

    def release(self, request: RequestState) -> None:
        self._num_tokens.pop(request.request_id, None)


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


_STAGES = 3
"""The most stages while the request runs, as in Llumnix."""
_LAST_STAGE_BLOCKS = 16
"""The most blocks of the last stage, as in Llumnix: copying them takes less than a step."""


async def copy_stages(
    state: SchedulerState, request_id: str, transfer: KvTransfer, sleep: Callable[[float], Awaitable[None]]
) -> int:
    """Copy the computed tokens of a request in stages until few are left. Return the number of tokens copied."""
    copied = 0
    for _ in range(_STAGES):
        request = state.requests.get(request_id)
        left = computed_tokens(request) - copied if request is not None else 0
        if left <= _LAST_STAGE_BLOCKS * state.constants.block_size:
            break
        await sleep(transfer.seconds(left))
        copied += left
    return copied


def computed_tokens(request: RequestState) -> int:
    """The tokens whose KV exists for certain, without those that a step in flight computes."""
    return min(request.num_computed_tokens, request.num_tokens - 1)
