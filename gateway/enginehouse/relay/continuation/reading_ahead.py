"""Bounds the text that a backend reads for moves."""

from __future__ import annotations

import asyncio
from collections import deque

from enginehouse.domain.errors import CannotContinue

_STEP_S = 0.02
"""About a step of a busy engine: streams that are cut already wait no longer for the texts of others."""
_RISE = 0.1
"""A text that the backend had in its cache is read quickly, so one fast reading says little of its speed."""


class ReadingAhead:
    """The texts that one backend reads, or has read for streams that it does not continue yet.

    A text has its turn when there is no other one, or when all together take at most ``_STEP_S`` at the speed of the
    readings so far.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._tokens = 0
        self._speed = 0.0  # tokens a second
        self._waiting: deque[ReadingTurn] = deque()

    def note(self, tokens: int, seconds: float) -> None:
        """Note that the backend has read a text in so many seconds."""
        speed = tokens / max(seconds, 1e-6)
        slower = not self._speed or speed < self._speed
        self._speed = speed if slower else self._speed + _RISE * (speed - self._speed)

    def ask(self, turn: ReadingTurn) -> None:
        """Let ``turn`` come after those that wait."""
        self._waiting.append(turn)
        self._grant()

    def leave(self, turn: ReadingTurn) -> None:
        """Give ``turn`` up, or end it."""
        if turn.granted.done():
            self._tokens -= turn.tokens
        else:
            self._waiting.remove(turn)
        self._grant()

    def _grant(self) -> None:
        waiting = self._waiting
        while waiting and (not self._tokens or self._tokens + waiting[0].tokens <= self._speed * _STEP_S):
            turn = waiting.popleft()
            self._tokens += turn.tokens
            turn.granted.set_result(None)


class ReadingTurn:
    """The turn of one text of so many ``tokens``, until ``end``."""

    def __init__(self, readings: ReadingAhead, tokens: int) -> None:
        self.tokens = tokens
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readings = readings
        readings.ask(self)

    async def begin(self, longest_wait: float) -> None:
        """Wait for the turn. Raises ``CannotContinue`` after ``longest_wait`` seconds."""
        if not self.granted.done():
            await asyncio.wait([self.granted], timeout=longest_wait)
        if not self.granted.done():
            raise CannotContinue(f"Backend '{self._readings.backend}' is reading other streams", retry_after=1)

    def end(self) -> None:
        """The backend continues the stream, or the stream stays where it is."""
        self._readings.leave(self)
