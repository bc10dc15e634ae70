"""The migrations under way, and room for more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MAX_MIGRATIONS = 4
"""The most migrations under way in each direction."""


class SlotsOneWay:
    """Migrations in one direction; lengths in tokens."""

    def __init__(self) -> None:
        self.requests = 0
        self.tokens = 0

    @property
    def available(self) -> int:
        """How many more migrations may begin."""
        return MAX_MIGRATIONS - self.requests

    @contextmanager
    def occupy(self, num_tokens: int) -> Iterator[None]:
        """Count a migration of ``num_tokens`` while the block runs."""
        self.requests += 1
        self.tokens += num_tokens
        try:
            yield
        finally:
            self.requests -= 1
            self.tokens -= num_tokens


class MigrationSlots:
    """The migrations of one engine in both directions; its KV cache holds ``capacity`` tokens."""

    def __init__(self, capacity: int) -> None:
        self.incoming = SlotsOneWay()
        self.outgoing = SlotsOneWay()
        self._capacity = capacity

    def figures(self) -> dict[str, Any]:
        """The figures under the names of Llumnix's instance status."""
        figures: dict[str, Any] = {}
        for name, direction in (("in", self.incoming), ("out", self.outgoing)):
            left = max(0, self._capacity - direction.tokens)
            figures |= {
                f"num_migrate_{name}_reqs": direction.requests,
                f"num_available_migrate_{name}_slots": direction.available,
                f"num_migrate_{name}_tokens": direction.tokens,
                f"num_available_migrate_{name}_tokens": left,
                f"kv_cache_usage_ratio_migrate_{name}": direction.tokens / self._capacity,
                f"available_kv_cache_usage_ratio_migrate_{name}": left / self._capacity,
            }
        return figures
