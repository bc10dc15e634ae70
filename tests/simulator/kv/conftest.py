from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from enginehouse_sim.options import SchedulerConstants
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.events import KvEvents
from tests.support.asked import new_state


@pytest.fixture
def new_request() -> Callable[..., RequestState]:
    """A request with the prompt 0, 1, 2 ... of a length, or with the tokens given."""
    numbers = count()

    def new(prompt: int | list[int], **fields: Any) -> RequestState:
        tokens = list(range(prompt)) if isinstance(prompt, int) else prompt
        request_id = fields.pop("request_id", f"r{next(numbers)}")
        return new_state(request_id=request_id, prompt_token_ids=tokens, max_tokens=100, **fields)

    return new


@pytest.fixture
def new_manager() -> Callable[..., KvCacheManager]:
    """A manager of blocks of 4 tokens; ``usable`` of them can be had."""

    def new(usable: int = 10, events: KvEvents | None = None, **constants: Any) -> KvCacheManager:
        return KvCacheManager(SchedulerConstants(block_size=4, total_gpu_blocks=usable + 1, **constants), events)

    return new


@pytest.fixture
def compute() -> Callable[..., None]:
    """Admit a request and compute its first tokens, all of them unless told otherwise."""

    def run(manager: KvCacheManager, request: RequestState, num_tokens: int | None = None) -> None:
        hit = manager.get_computed_blocks(request)
        end = request.num_tokens if num_tokens is None else num_tokens
        assert manager.allocate_slots(request, end - hit.num_tokens, computed=hit) is not None
        request.num_computed_tokens = end

    return run
