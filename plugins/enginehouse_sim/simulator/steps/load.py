"""The load of one step."""

from __future__ import annotations

import msgspec


class StepLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Lengths in tokens.

    ``prefill_tokens``: prompt tokens computed. ``prefill_pairs``: pairs of such a token and one cached before the step:
    the cost of attention to the context. ``first_tokens``: prompts whose end is reached. ``decodes``: requests that
    generate. ``draft_tokens``: drafts verified. ``active_kv_tokens``: what decoding requests read from the cache,
    shared or not. ``total_kv_tokens``: the capacity of the cache.
    """

    prefill_tokens: int = 0
    prefill_pairs: int = 0
    first_tokens: int = 0
    decodes: int = 0
    draft_tokens: int = 0
    active_kv_tokens: int = 0
    total_kv_tokens: int = 0
