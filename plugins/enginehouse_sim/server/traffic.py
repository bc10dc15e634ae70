"""The requests that are moving, in figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SLOTS = 4
"""The most requests that come at once, and that go."""


class Way:
    """One direction; lengths in tokens."""

    def __init__(self) -> None:
        self.requests = 0
        self.tokens = 0

    @property
    def slots(self) -> int:
        """How many more requests may set out."""
        return SLOTS - self.requests

    @contextmanager
    def travel(self, num_tokens: int) -> Iterator[None]:
        """A request is on its way."""
        self.requests += 1
        self.tokens += num_tokens
        try:
            yield
        finally:
            self.requests -= 1
            self.tokens -= num_tokens


class Traffic:
    """Both directions of one engine, whose KV cache holds ``capacity`` tokens."""

    def __init__(self, capacity: int) -> None:
        self.incoming = Way()
        self.outgoing = Way()
        self._capacity = capacity

    def figures(self) -> dict[str, Any]:
        """As Llumnix's instance status names them."""
        figures: dict[str, Any] = {}
        for name, way in (("in", self.incoming), ("out", self.outgoing)):
            left = max(0, self._capacity - way.tokens)
            figures |= {
                f"num_migrate_{name}_reqs": way.requests,
                f"num_available_migrate_{name}_slots": way.slots,
                f"num_migrate_{name}_tokens": way.tokens,
                f"num_available_migrate_{name}_tokens": left,
                f"kv_cache_usage_ratio_migrate_{name}": way.tokens / self._capacity,
                f"available_kv_cache_usage_ratio_migrate_{name}": left / self._capacity,
            }
        return figures
