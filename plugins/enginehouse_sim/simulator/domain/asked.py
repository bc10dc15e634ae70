"""What an engine is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class MultiModalInput(msgspec.Struct, frozen=True):
    """An image or the like: ``length`` placeholder tokens from ``offset`` on.

    Equal content has an equal ``identifier``.
    """

    identifier: str
    offset: int
    length: int


IMAGE_TOKENS = 64
"""The tokens that stand for one image."""


class EngineCoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is asked, under vLLM's names. Lengths are in tokens.

    ``output_token_ids``: the tokens that another engine generated before the request moved here. ``choice``: the number
    of this answer among several to the same prompt. ``logprobs``: the number of likeliest tokens to report at each
    place, at least the sampled one; ``None`` for none. ``priority``: smaller is more urgent. ``arrival_time``: seconds
    on the engine's clock. ``structured_output``: the grammar; ``None`` for free text. ``pooling``: only the prompt is
    computed, as for embeddings. ``kv_transfer_params``: the client's message to the KV connector.
    """

    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int
    output_token_ids: Sequence[int] = ()
    min_tokens: int = 0
    choice: int = 0
    logprobs: int | None = None
    priority: int = 0
    arrival_time: float = 0.0
    eos_token_id: int | None = None
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    lora: str | None = None
    cache_salt: str | None = None
    structured_output: str | None = None
    mm_inputs: Sequence[MultiModalInput] = ()
    pooling: bool = False
    kv_transfer_params: dict[str, Any] | None = None
