"""The engine core: a number of seats, and tokens at a steady pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

from enginehouse_sim.clock import Clock
from enginehouse_sim.continuation import continuation
from enginehouse_sim.server.engine import Figures, Token, Work
from enginehouse_sim.server.settings import Settings


class PacedEngine:
    """Runs ``concurrency`` requests at once, first come, first served; the others wait.

    A running request gets its first token after ``ttft`` seconds and another one every ``tpot`` seconds, however many
    run beside it. With both at 0 it is never made to wait for its next token.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._seats = asyncio.Semaphore(settings.concurrency)
        self._running = 0
        self._waiting = 0
        self._held = 0

    async def generate(self, work: Work) -> AsyncGenerator[Token, None]:
        """The tokens of ``work``, once it has a seat."""
        await self._take_seat()
        held = work.prompt_tokens
        self._held += held
        try:
            answers = self._answers(work)
            due = self._clock.now() + self._settings.ttft
            await self._until(due)
            for left in range(work.max_tokens - 1, -1, -1):
                for choice, answer in enumerate(answers):
                    held += 1
                    self._held += 1
                    yield Token(choice, next(answer), None if left else "length")
                if left:
                    due += self._settings.tpot
                    await self._until(due)
        finally:
            self._held -= held
            self._running -= 1
            self._seats.release()

    async def _take_seat(self) -> None:
        self._waiting += 1
        try:
            await self._seats.acquire()
        finally:
            self._waiting -= 1
        self._running += 1

    def _answers(self, work: Work) -> list[Iterator[str]]:
        seed = self._settings.seed
        return [continuation(seed, prompt, choice) for prompt in work.prompts for choice in range(work.choices)]

    async def _until(self, due: float) -> None:
        if (seconds := due - self._clock.now()) > 0:
            await self._clock.sleep(seconds)

    def figures(self) -> Figures:
        """How busy the engine is; the KV cache holds ``concurrency`` requests of the longest context."""
        capacity = self._settings.concurrency * self._settings.context_length
        return Figures(self._running, self._waiting, min(1.0, self._held / capacity))
