"""The figures of step models and of transfers, as profiles have them."""

from __future__ import annotations

import msgspec


class KvShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dimensions that decide a KV cache's size; the defaults are those of Llama 3 8B in 16 bit."""

    layers: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    dtype_bytes: int = 2

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype_bytes


class KvTransfer:
    """A link of ``bandwidth`` bytes per second. With 0, transfers take no time."""

    def __init__(self, shape: KvShape, bandwidth: float = 64e9) -> None:
        self._seconds_per_token = shape.bytes_per_token / bandwidth if bandwidth else 0.0

    def seconds(self, tokens: int) -> float:
        return tokens * self._seconds_per_token


class StepLoad(msgspec.Struct, kw_only=True, gc=False):
    """Lengths in tokens.

    ``prefill_tokens``: prompt tokens computed. Each attends to the tokens of its context that earlier steps computed,
    and to itself and those of this step before it: ``prefill_pairs`` and ``own_pairs`` count these pairs, prompt by
    prompt. ``first_tokens``: prompts whose end is reached. ``decodes``: requests that generate. ``draft_tokens``:
    drafts verified. ``active_kv_tokens``: the tokens that decoding requests read from the KV cache; each request counts
    shared ones. ``total_kv_tokens``: the capacity of the KV cache. ``waiting``: the requests that wait for a place.
    """

    prefill_tokens: int = 0
    prefill_pairs: int = 0
    own_pairs: int = 0
    first_tokens: int = 0
    decodes: int = 0
    draft_tokens: int = 0
    active_kv_tokens: int = 0
    total_kv_tokens: int = 0
    waiting: int = 0


class PassCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The costs of a forward pass, in milliseconds.

    ``fixed_ms``: every pass, for launching and sampling. ``weights_ms``: reading the weights. ``token_ms``: computing a
    token, of a prompt or of an answer; a pass takes the longer of its tokens and the weights. ``pair_ms``: attention
    between a prompt's token and one token of its context. ``kv_token_ms``: reading a cached token for a request that
    decodes. ``sequence_ms``: each request that gets a token. ``prompt_ms``: every pass that computes prompts.
    ``waiting_ms``: each request that waits for a place meanwhile.
    """

    fixed_ms: float = 0.0
    weights_ms: float = 0.0
    token_ms: float = 0.0
    pair_ms: float = 0.0
    kv_token_ms: float = 0.0
    sequence_ms: float = 0.0
    prompt_ms: float = 0.0
    waiting_ms: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) >= 0:
                raise ValueError(f"costs.{name} is below 0")
