"""Notices a client that does not read its answers."""

from __future__ import annotations


class SlowReader:
    """Watches the number of bytes of answers that a client has not taken yet."""

    __slots__ = ("_since", "_unread")

    def __init__(self) -> None:
        self._unread = 0
        self._since = 0.0

    def has_stalled(self, unread: int, now: float, limit: float) -> bool:
        """Whether the client has taken no byte for more than ``limit`` seconds; 0 means no limit."""
        if not unread or unread != self._unread:
            self._unread, self._since = unread, now
            return False
        return limit > 0 and now - self._since > limit
