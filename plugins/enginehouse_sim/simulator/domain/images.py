"""Images and the like, as parts of a prompt."""

from __future__ import annotations

import msgspec


class MultiModalInput(msgspec.Struct, frozen=True):
    """An image or the like: ``length`` placeholder tokens from ``offset`` on.

    Equal content has an equal ``identifier``.
    """

    identifier: str
    offset: int
    length: int
