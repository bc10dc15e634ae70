"""What the scheduler counts since its start."""

from __future__ import annotations

import msgspec


class Totals(msgspec.Struct):
    """Tokens asked of and found in the prefix cache and outside; tokens drafted and accepted; preemptions."""

    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    external_cache_queries: int = 0
    external_cache_hits: int = 0
    num_preemptions: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
