"""The duration of transfers of keys and values."""

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
