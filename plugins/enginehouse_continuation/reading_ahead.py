"""Bounds the text that a backend reads for moves."""

from __future__ import annotations

import asyncio
from collections import deque

from enginehouse.errors import CannotContinue

_SHORT_S = 0.02
"""About a step of a busy engine: streams that are cut already wait so long for the texts of others anyway."""
_KEPT = 0.9
"""The weight of what was noted, at each further note: a text may have been in the cache, so one says little."""


class ReadingAhead:
    """The texts that one backend reads, or has read for streams that it does not continue yet.

    A text has its turn when there is no other one, or when the backend reads all together in half of a usual gap, or in
    ``_SHORT_S`` if that is longer. Gaps contain the reading of other texts, and so become at most twice as long.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._tokens = 0
        self._waiting: deque[ReadingTurn] = deque()
        self._notes = self._noted_tokens = self._noted_seconds = self._noted_gaps = 0.0

    def note(self, tokens: int, seconds: float, gap: float) -> None:
        """Note that the backend has answered a text in so many ``seconds``, and then continued it in ``gap`` seconds.

        Both times have a step of the engine, and the rest of the one that was under way. The continuation reads next to
        nothing, so what the text took longer was its reading.
        """
        self._notes = _KEPT * self._notes + 1
        self._noted_tokens = _KEPT * self._noted_tokens + tokens
        self._noted_seconds = _KEPT * self._noted_seconds + seconds - gap
        self._noted_gaps = _KEPT * self._noted_gaps + gap

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
        waiting, most = self._waiting, self._most() if self._notes else 0.0
        while waiting and (not self._tokens or self._tokens + waiting[0].tokens <= most):
            turn = waiting.popleft()
            self._tokens += turn.tokens
            turn.granted.set_result(None)

    def _most(self) -> float:
        """How many tokens may be read together."""
        gap = self._noted_gaps / self._notes
        # Steps begin at any moment of a gap, so a difference of a quarter says nothing.
        seconds = max(self._noted_seconds, gap / 4, 1e-6)
        return self._noted_tokens / seconds * max(gap / 2, _SHORT_S)


class ReadingTurn:
    """The turn of one text of so many ``tokens`` among ``readings``, until ``end``."""

    def __init__(self, readings: ReadingAhead, tokens: int) -> None:
        self.tokens = tokens
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.readings = readings
        readings.ask(self)

    async def begin(self, longest_wait: float) -> None:
        """Wait for the turn. Raises ``CannotContinue`` after ``longest_wait`` seconds."""
        if not self.granted.done():
            await asyncio.wait([self.granted], timeout=longest_wait)
        if not self.granted.done():
            raise CannotContinue(f"Backend '{self.readings.backend}' is reading other streams", retry_after=1)

    def end(self) -> None:
        """The backend continues the stream, or the stream stays where it is."""
        self.readings.leave(self)
