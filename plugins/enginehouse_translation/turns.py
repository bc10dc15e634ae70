"""Shares the event loop between streams with a lot to translate."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

_AT_ONCE: Final = 4
"""Turns in each iteration of the loop; one takes 1 to 2 ms."""


class Translates(Protocol):
    """Has something to translate."""

    def take_turn(self) -> bool:
        """Translate a bounded part; whether there is more."""


class TranslationTurns:
    """Gives streams with a lot to translate their turns, a few in each iteration of the loop.

    So everything else on the loop waits for a few milliseconds at most, however many streams there are.
    """

    def __init__(self) -> None:
        self._waiting: deque[Translates] = deque()
        self._planned = 0

    def join(self, stream: Translates) -> None:
        """Have ``stream`` take turns until it has no more. It must not join again before."""
        if self._planned < _AT_ONCE:
            self._planned += 1
            asyncio.get_running_loop().call_soon(self._turn, stream)
        else:
            self._waiting.append(stream)

    def _turn(self, stream: Translates) -> None:
        self._planned -= 1
        if self._waiting:  # first: a stream that raises stops no other one
            self.join(self._waiting.popleft())
        if stream.take_turn():
            self.join(stream)
