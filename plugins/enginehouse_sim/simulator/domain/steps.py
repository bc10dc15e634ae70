"""The changes of requests in a step. A plain class, because every step makes one for each request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class CachedRequestData:
    """The changes of a request that the model runner knows.

    ``new_block_ids`` extend its block table. After a preemption they replace it, and ``token_ids`` are all tokens of
    the request, because the runner has dropped them. ``num_computed_tokens`` is the count before this step.
    """

    __slots__ = ("new_block_ids", "num_computed_tokens", "request_id", "resumed_from_preemption", "token_ids")

    def __init__(
        self,
        request_id: str,
        resumed_from_preemption: bool,
        new_block_ids: Sequence[int],
        num_computed_tokens: int,
        token_ids: Sequence[int] = (),
    ) -> None:
        self.request_id = request_id
        self.resumed_from_preemption = resumed_from_preemption
        self.new_block_ids = new_block_ids
        self.num_computed_tokens = num_computed_tokens
        self.token_ids = token_ids


def fields_of(value: Any) -> dict[str, Any]:
    """The fields and properties of an object whose class has slots, by name. Compiled classes keep no list of slots."""
    return {
        name: getattr(value, name)
        for name, field in vars(type(value)).items()
        if hasattr(type(field), "__set__") and not name.startswith("_")
    }
