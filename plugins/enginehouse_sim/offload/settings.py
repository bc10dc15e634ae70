"""How far ahead room is looked after."""

from __future__ import annotations

import msgspec


class OffloadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When to act, and on whom; lengths in tokens, times in passes of the model.

    ``starvation_within``: requests are moved away when the worst case runs out of blocks within so many passes.
    ``safe_for``: nobody comes back, or is admitted, unless the worst case has enough for so many; the distance between
    the two keeps requests from going to and fro. ``order``: who goes first, one of ``OFFLOAD_ORDERS``.
    ``guaranteed_tokens``: what a request makes, once it was admitted or came back, before it may be moved again.
    """

    starvation_within: int = 8
    safe_for: int = 32
    order: str = "fewest_blocks"
    guaranteed_tokens: int = 16
