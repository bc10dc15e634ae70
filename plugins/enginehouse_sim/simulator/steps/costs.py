"""The figures of step models and of transfers, as profiles have them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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


class PrefillTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Milliseconds by the tokens of one prompt, without cached ones before them.

    ``ms_per_pair``: the milliseconds of attention for each pair of a token and one of its context.
    """

    tokens: tuple[float, ...]
    ms: tuple[float, ...]
    ms_per_pair: float = 0.0

    def __post_init__(self) -> None:
        _require_axis("prefill.tokens", self.tokens)
        _require_shape("prefill.ms", [self.ms], 1, len(self.tokens))


class DecodeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Milliseconds by cached tokens read (rows) and tokens computed (columns), one for each request and draft."""

    active_kv_tokens: tuple[float, ...]
    batch: tuple[float, ...]
    ms: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        _require_axis("decode.active_kv_tokens", self.active_kv_tokens)
        _require_axis("decode.batch", self.batch)
        _require_shape("decode.ms", self.ms, len(self.active_kv_tokens), len(self.batch))


def _require_axis(name: str, axis: Sequence[float]) -> None:
    if len(axis) < 2 or any(after <= before for before, after in pairwise(axis)):
        raise ValueError(f"{name} needs two points or more, each greater than the one before")


def _require_shape(name: str, table: Sequence[Sequence[float]], rows: int, columns: int) -> None:
    if len(table) != rows or any(len(row) != columns for row in table):
        raise ValueError(f"{name} needs {rows} x {columns} values, one for each point of its axes")
