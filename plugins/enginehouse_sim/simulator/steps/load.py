"""The load of one step."""

from __future__ import annotations


class StepLoad:
    """Lengths in tokens.

    ``prefill_tokens``: prompt tokens computed. Each attends to the tokens of its context that earlier steps computed,
    and to itself and those of this step before it: ``prefill_pairs`` and ``own_pairs`` count these pairs, prompt by
    prompt. ``first_tokens``: prompts whose end is reached. ``decodes``: requests that generate. ``draft_tokens``:
    drafts verified. ``active_kv_tokens``: the tokens that decoding requests read from the KV cache; each request counts
    shared ones. ``total_kv_tokens``: the capacity of the KV cache. ``waiting``: the requests that wait for a place.
    """

    __slots__ = (
        "active_kv_tokens",
        "decodes",
        "draft_tokens",
        "first_tokens",
        "own_pairs",
        "prefill_pairs",
        "prefill_tokens",
        "total_kv_tokens",
        "waiting",
    )

    def __init__(
        self,
        *,
        prefill_tokens: int = 0,
        prefill_pairs: int = 0,
        own_pairs: int = 0,
        first_tokens: int = 0,
        decodes: int = 0,
        draft_tokens: int = 0,
        active_kv_tokens: int = 0,
        total_kv_tokens: int = 0,
        waiting: int = 0,
    ) -> None:
        self.prefill_tokens = prefill_tokens
        self.prefill_pairs = prefill_pairs
        self.own_pairs = own_pairs
        self.first_tokens = first_tokens
        self.decodes = decodes
        self.draft_tokens = draft_tokens
        self.active_kv_tokens = active_kv_tokens
        self.total_kv_tokens = total_kv_tokens
        self.waiting = waiting
