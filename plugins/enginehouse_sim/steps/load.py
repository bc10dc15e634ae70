"""What one step has to do, in figures."""

from __future__ import annotations

import msgspec


class StepLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The load of one step, lengths in tokens.

    ``prefill_tokens``: tokens of prompts that are read. ``prefill_pairs``: pairs of such a token and one that was in
    the cache before the step, which is what attention to the context costs. ``first_tokens``: prompts whose end is
    reached. ``decodes``: requests that make their next tokens. ``draft_tokens``: drafts of theirs that are checked.
    ``active_kv_tokens``: what the decoding requests read from the cache, shared or not. ``total_kv_tokens``: what the
    cache can hold.
    """

    prefill_tokens: int = 0
    prefill_pairs: int = 0
    first_tokens: int = 0
    decodes: int = 0
    draft_tokens: int = 0
    active_kv_tokens: int = 0
    total_kv_tokens: int = 0
