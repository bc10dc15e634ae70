"""The rules by which requests are offloaded."""

from __future__ import annotations

import msgspec


class OffloadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths in tokens, times in passes of the model.

    ``starvation_within``: offload if the worst case runs out of blocks within this many passes. ``safe_for``: resume or
    admit only if the blocks last for this many. The distance between the two prevents requests from moving back and
    forth. ``order``: which requests are offloaded first, one of ``OFFLOAD_ORDERS``. ``guaranteed_tokens``: the tokens
    that a request generates after its admission or return before it may be offloaded again.
    """

    starvation_within: int = 8
    safe_for: int = 32
    order: str = "fewest_blocks"
    guaranteed_tokens: int = 16
