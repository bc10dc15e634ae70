"""The second try of a stream that is slow to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginehouse.domain.errors import RequestError
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.continuation.delivered import Delivered
from enginehouse.relay.heads.answer_head import AnswerHead

if TYPE_CHECKING:
    from enginehouse.relay.attempts.hedged_dispatch import HedgedDispatch


class Hedge:
    """A try beside another one, with its own place at its backend. ``delivered``: as in ``Job``, for this try."""

    __slots__ = ("_owner", "attempt", "delivered")

    def __init__(self, owner: HedgedDispatch, attempt: Attempt, delivered: Delivered | None) -> None:
        self._owner = owner
        self.attempt = attempt
        self.delivered = delivered

    # --- as a receiver

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        self._owner.hedge_answered(self, head, body, complete)

    def broken(self, why: str, *, stale: bool) -> None:
        self._owner.hedge_broke(self, why, stale)

    # --- as the holder of a slot

    def granted(self) -> None:
        self.attempt.granted()

    def rejected(self, error: RequestError) -> None:
        """The slot was not granted at once, which its owner sees."""
