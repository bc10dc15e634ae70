"""Limits the size of a request's head, and the time for which a connection waits for it."""

from __future__ import annotations

from typing import Final

MOST: Final = 64 * 1024
_A_SECOND: Final = 1024


class HeadAllowance:
    """Grows by the bytes received since the last complete head or piece of a body, and by one KiB for each second.

    So no head is endless, and none takes much longer than a minute.
    """

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0

    @property
    def exhausted(self) -> bool:
        return self.used > MOST

    def charge_second(self) -> None:
        """A second has passed without anything."""
        self.used += _A_SECOND

    def reset(self) -> None:
        """A head is complete, or a piece of a body has come."""
        self.used = 0
