"""The part of a waiting request that needs no computing."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.computed_blocks import NOTHING_COMPUTED, ComputedBlocks
from enginehouse_sim.simulator.scheduler.state import SchedulerState


class PrefixMatch(NamedTuple):
    """The cached blocks of a request, and the tokens after them that the connector has.

    ``load_async``: these arrive between steps, not within one.
    """

    computed: ComputedBlocks = NOTHING_COMPUTED
    num_external_tokens: int = 0
    load_async: bool = False

    @property
    def num_computed_tokens(self) -> int:
        """The tokens that need no computing."""
        return self.computed.num_tokens + self.num_external_tokens


def match_prefix(state: SchedulerState, request: RequestState) -> PrefixMatch | None:
    """The match of a request without blocks; ``None`` if the connector cannot tell yet."""
    computed = state.kv_cache.get_computed_blocks(request)
    if state.connector is None:
        return PrefixMatch(computed)
    match = state.connector.get_num_new_matched_tokens(request, computed.num_tokens)
    if match.num_tokens is None:
        return None
    last_is_computed_here = not match.load_async or request.num_tokens == 1
    num_external = min(match.num_tokens, request.num_tokens - last_is_computed_here - computed.num_tokens)
    if not num_external:
        return PrefixMatch(computed)
    return PrefixMatch(computed, num_external, match.load_async)
