"""The record of one answer."""

from __future__ import annotations

from typing import Any


class AnswerRecord:
    """One answer of an engine, or all that a client gets; times are in seconds on the virtual clock.

    - ``owner``: the object of the engine's owner for it.
    - ``has_moved``: another engine continues it, and has not made a token yet.
    - ``is_ahead``: it computes tokens for another request, and no figure counts it.
    - ``is_read``: another engine has computed the prompt.
    - ``is_unread``: the gateway does not read on, so the gaps between tokens reach no client.
    """

    __slots__ = (
        "arrival",
        "cached_tokens",
        "first_token",
        "has_moved",
        "input_length",
        "is_ahead",
        "is_read",
        "is_unread",
        "last_token",
        "output_tokens",
        "owner",
    )

    def __init__(self, arrival: float, input_length: int, owner: Any = None, *, is_ahead: bool = False) -> None:
        self.arrival = arrival
        self.input_length = input_length
        self.owner = owner
        self.has_moved = False
        self.is_ahead = is_ahead
        self.is_read = self.is_unread = False
        self.first_token = -1.0
        self.last_token = arrival
        self.output_tokens = 0
        self.cached_tokens = 0
