"""The work of one HTTP request, and running it on the engine."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from enginehouse import InvalidRequest, NotFound
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.server.answers import Answer, Piece
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine, Clock
from enginehouse_sim.simulator.server.listeners import Follower, Followers
from enginehouse_sim.simulator.server.metrics import Metrics, RequestMeter
from enginehouse_sim.simulator.server.work import Work


class Generator:
    """Runs work on the engine, and meters it."""

    def __init__(self, engine: BatchingEngine, metrics: Metrics, clock: Clock) -> None:
        self.engine = engine
        self.metrics = metrics
        self.clock = clock

    def run(self, work: Work, *, streams: bool = False) -> Run:
        """A run of ``work``, which starts in a ``with`` block. ``streams``: its answers are read piece by piece."""
        return Run(self, work, streams)


class Run:
    """One run of some work. The end of the ``with`` block aborts the requests that have not finished.

    Entering the block raises ``InvalidRequest`` for work that can never be done, ``EngineFailed`` after a failure, and
    ``NotFound`` if the request to follow is not here.
    """

    def __init__(self, generator: Generator, work: Work, streams: bool) -> None:
        self.work = work
        self.answers: Sequence[Answer] = ()
        self._generator = generator
        self._streams = streams
        self._pieces: deque[Piece] = deque()
        self._num_delivered = 0
        self._num_unfinished = work.size
        self._changed: asyncio.Future[None] | None = None

    def __enter__(self) -> Run:
        answers: list[Answer] = []
        self.answers = answers
        try:
            if self.work.follows is not None:
                self._follow(answers, self.work.follows)
            else:
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
        """The cached tokens of all prompts."""
        return sum(answer.cached_tokens for answer in self.answers[:: self.work.choices])

    @property
    def completion_tokens(self) -> int:
        """The tokens of all answers so far; of streamed answers, those delivered."""
        return self._num_delivered if self._streams else sum(len(answer.token_ids) for answer in self.answers)

    async def finished(self) -> Sequence[Answer]:
        """Wait for all answers. Raises the ``RequestError`` of one that failed."""
        while self._num_unfinished:
            await self._wait()
        self._raise_error()
        return self.answers

    async def pieces(self) -> AsyncIterator[Piece]:
        """The pieces as steps make them. Raises ``RequestError`` after the last piece of a failed answer."""
        while self._num_unfinished or self._pieces:
            while self._pieces:
                piece = self._pieces.popleft()
                self._num_delivered += len(piece.token_ids)
                yield piece
            if self._num_unfinished:
                await self._wait()
        self._raise_error()

    def _begin(self, answers: list[Answer], number: int) -> None:
        engine, clock = self._generator.engine, self._generator.clock
        request_id = self.work.id if self.work.size == 1 else f"{self.work.id}-{number}"
        if engine.is_known(request_id):
            request_id = f"{request_id}+{random.getrandbits(32):08x}"
        request = self.work.request(number, request_id)
        meter = RequestMeter(self._generator.metrics, clock.now(), request.num_prompt_tokens)
        on_piece = self._push if self._streams else None
        answer = Answer(self.work, number, request_id, engine, meter, self._ended, on_piece)
        engine.add_request(request, answer)
        answers.append(answer)

    def _follow(self, answers: list[Answer], request_id: str) -> None:
        """Join the followers of a request that migrated here, and catch up with the tokens after the prompt."""
        engine, now = self._generator.engine, self._generator.clock.now()
        request, followers = engine.state.requests.get(request_id), engine.listener(request_id)
        if request is None or not isinstance(followers, Followers):
            raise NotFound(f"No request '{request_id}' has migrated here and still runs")
        prompt, tokens = self.work.prompts[0].token_ids, request.all_token_ids
        if self.work.size > 1 or tokens[: len(prompt)] != prompt:
            raise InvalidRequest(f"The request '{request_id}' does not continue this prompt")
        follower = Follower(followers)
        meter = RequestMeter(self._generator.metrics, now, 0)
        answer = Answer(self.work, 0, request_id, follower, meter, self._ended, self._push if self._streams else None)
        answers.append(answer)
        follower.begin(answer)
        if made := tokens[len(prompt) :]:
            answer.on_output(EngineCoreOutput(request_id, tuple(made)), now)

    def _push(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._wake()

    def _ended(self) -> None:
        self._num_unfinished -= 1
        if not self._num_unfinished:
            self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _wait(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _raise_error(self) -> None:
        for answer in self.answers:
            if answer.error is not None:
                raise answer.error

    def _abort(self) -> None:
        if not self._num_unfinished:
            return
        now = self._generator.clock.now()
        for answer in self.answers:
            if not answer.ended:
                answer.abort(now)
