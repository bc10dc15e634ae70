"""The worst case of the running requests, as input for the projection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from enginehouse import ProjectionParams, RequestFigures, WorstCaseProjection, project
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.state import SchedulerState


class BlockForecast:
    """Projects the blocks in use over the next ``passes``. This costs little while there is room in any case."""

    def __init__(self, state: SchedulerState, passes: int) -> None:
        constants = state.constants
        self._state = state
        self._params = ProjectionParams(
            block_size=constants.block_size,
            total_blocks=constants.total_gpu_blocks - 1,
            lookahead=passes,
            tokens_per_pass_per_request=1 + constants.num_spec_tokens,
            prefill_tokens_per_pass=constants.max_num_batched_tokens,
        )
        self._most_growth = passes * self._params.tokens_per_pass_per_request // constants.block_size + 2

    @property
    def total_blocks(self) -> int:
        return self._params.total_blocks

    def is_safe(self, joining: Sequence[RequestState] = ()) -> bool:
        """Whether the blocks last for all passes if the requests ``joining`` run as well."""
        if self._has_plenty(joining):
            return True
        return self.project(joining).wc_until_block_starvation is None

    def project(self, joining: Sequence[RequestState] = ()) -> WorstCaseProjection:
        """The worst case of the running requests and of ``joining``."""
        tables = [self._state.kv_cache.get_block_ids(request.request_id) for request in self._state.running]
        holders = Counter(chain.from_iterable(tables)) if self._state.constants.enable_prefix_caching else None
        figures = [
            self._figures(request, [block for block in table if holders[block] > 1] if holders is not None else ())
            for request, table in zip(self._state.running, tables, strict=True)
        ]
        return project([*figures, *(self._figures(request, ()) for request in joining)], self._params)

    def remaining_tokens(self, request: RequestState) -> int:
        """The most tokens that a request can still generate."""
        most = min(request.num_prompt_tokens + request.max_tokens, self._state.constants.max_model_len)
        return max(1, most - request.num_tokens)

    def _has_plenty(self, joining: Sequence[RequestState]) -> bool:
        """Whether the free blocks last even if every request grows at the greatest rate."""
        size, running = self._params.block_size, self._state.running
        reading = sum(-(-request.num_tokens // size) for request in joining)
        unread = sum(
            -(-(request.num_tokens - request.num_computed_tokens) // size)
            for request in running
            if request.num_tokens - request.num_computed_tokens > self._params.tokens_per_pass_per_request
        )
        growth = (len(running) + len(joining)) * self._most_growth
        return reading + unread + growth <= self._state.kv_cache.num_free_blocks

    def _figures(self, request: RequestState, shared: Sequence[int]) -> RequestFigures:
        return RequestFigures(
            request_id=request.request_id,
            num_tokens=request.num_tokens + request.num_output_placeholders,
            num_computed_tokens=min(
                request.num_computed_tokens, request.num_tokens + request.num_output_placeholders - 1
            ),
            remaining_tokens=self.remaining_tokens(request),
            shared_blocks=shared,
        )
