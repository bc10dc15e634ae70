"""Running work on the engine, and following its answers."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from enginehouse_sim.clock import Clock
from enginehouse_sim.server.answer import Answer, Piece
from enginehouse_sim.server.engine import Engine
from enginehouse_sim.server.metrics import Metrics, RequestMeter
from enginehouse_sim.server.work import Work


class Generator:
    """Runs work on the engine, and counts it."""

    def __init__(self, engine: Engine, metrics: Metrics, clock: Clock) -> None:
        self.engine = engine
        self.metrics = metrics
        self.clock = clock

    def run(self, work: Work, *, streams: bool = False) -> Run:
        """The work, which runs inside a ``with`` block; ``streams``: it is followed piece by piece."""
        return Run(self, work, streams)


class Run:
    """One piece of work under way; what has not ended when the ``with`` block is left is aborted at once.

    Entering it raises ``InvalidRequest`` for work that can never be done.
    """

    def __init__(self, generator: Generator, work: Work, streams: bool) -> None:
        self.work = work
        self.answers: Sequence[Answer] = ()
        self._generator = generator
        self._streams = streams
        self._pieces: deque[Piece] = deque()
        self._told = 0
        self._going = work.size
        self._news: asyncio.Future[None] | None = None

    def __enter__(self) -> Run:
        answers: list[Answer] = []
        self.answers = answers
        try:
            for number in range(self.work.size):
                self._begin(answers, number)
        except BaseException:
            self._abort()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abort()

    @property
    def cached_tokens(self) -> int:
        """Of all prompts, the tokens that were in the cache."""
        return sum(answer.cached_tokens for answer in self.answers[:: self.work.choices])

    @property
    def completion_tokens(self) -> int:
        """The tokens of all answers so far; of those that are followed, what was told of them."""
        return self._told if self._streams else sum(len(answer.token_ids) for answer in self.answers)

    async def finished(self) -> Sequence[Answer]:
        """All answers, once all have ended. Raises ``RequestError`` if one of them never will."""
        while self._going:
            await self._wait()
        self._raise_error()
        return self.answers

    async def pieces(self) -> AsyncIterator[Piece]:
        """What the steps bring, as they bring it. Raises ``RequestError`` behind the last piece there will be."""
        while self._going or self._pieces:
            while self._pieces:
                piece = self._pieces.popleft()
                self._told += len(piece.token_ids)
                yield piece
            if self._going:
                await self._wait()
        self._raise_error()

    def _begin(self, answers: list[Answer], number: int) -> None:
        engine, clock = self._generator.engine, self._generator.clock
        request_id = self.work.id if self.work.size == 1 else f"{self.work.id}-{number}"
        if engine.knows(request_id):
            request_id = f"{request_id}+{random.getrandbits(32):08x}"
        request = self.work.request(number, request_id)
        meter = RequestMeter(self._generator.metrics, clock.now(), request.num_prompt_tokens)
        on_piece = self._push if self._streams else None
        answer = Answer(self.work, number, request_id, engine, meter, self._ended, on_piece)
        engine.begin(request, answer)
        answers.append(answer)

    def _push(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._wake()

    def _ended(self) -> None:
        self._going -= 1
        if not self._going:
            self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _raise_error(self) -> None:
        for answer in self.answers:
            if answer.error is not None:
                raise answer.error

    def _abort(self) -> None:
        if not self._going:
            return
        now = self._generator.clock.now()
        for answer in self.answers:
            if not answer.ended:
                answer.abort(now)
