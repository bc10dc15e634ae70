"""The hashes of a prompt's blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from enginehouse_sim.simulator.kv.block_pool import BlockHasher
from tests.support.asked import new_state


def hashes_of(hasher: BlockHasher, token_ids: Iterable[int], **more: Any) -> list[int]:
    """Those of a request with these tokens; ``more``: other fields of it."""
    request = new_state(request_id="", prompt_token_ids=list(token_ids), max_tokens=1, **more)
    return hasher.extend(request)
