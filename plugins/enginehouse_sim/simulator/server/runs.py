"""Runs of work on the engine, and their answers: tokens become text, and stop strings apply."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import msgspec

from enginehouse import InvalidRequest, RequestError
from enginehouse.errors import NotFound
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, TokenLogprobs
from enginehouse_sim.simulator.domain.request import RequestStatus
from enginehouse_sim.simulator.model.text import piece_of
from enginehouse_sim.simulator.server.batching_engine import (
    BatchingEngine,
    Followers,
)
from enginehouse_sim.simulator.server.bodies import Work
from enginehouse_sim.simulator.server.metrics import Metrics, RequestMeter


class StopStrings:
    """Follows one answer, and ends it before the first stop string, or after it with ``include``.

    A stop string may be spread over any number of tokens.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self._stops = stops
        self._include = include
        self._hold = 0 if include else max(len(stop) for stop in stops) - 1
        self._seen = max(len(stop) for stop in stops) - 1
        self._text = ""
        self._shown = 0

    def feed(self, text: str, last: bool) -> tuple[str, str | None]:
        """Take generated ``text``. Return the text to show, and the stop string found, if any.

        Text that may begin a stop string is held back until that is decided, or until the ``last`` text.
        """
        self._text += text
        found = min(((at, stop) for stop in self._stops if (at := self._text.find(stop)) >= 0), default=None)
        if found is not None:
            at, stop = found
            return self._text[self._shown : at + len(stop) * self._include], stop
        shown = len(self._text) if last else max(self._shown, len(self._text) - self._hold)
        new = self._text[self._shown : shown]
        self._trim(shown)
        return new, None

    def skip(self, text: str) -> str:
        """Take generated ``text`` in which stop strings do not apply. Return the text to show."""
        shown = self._text[self._shown :] + text
        self._text, self._shown = "", 0
        return shown

    def _trim(self, shown: int) -> None:
        """Keep only the text that is not shown yet, and the end of the shown text that may begin a stop string."""
        keep = min(shown, max(0, len(self._text) - self._seen))
        self._text, self._shown = self._text[keep:], shown - keep


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The part of an answer that one step adds; ``text`` may be empty.

    ``finish``: the finish reason, which only the last piece has.
    """

    choice: int
    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs]
    finish: str | None
    stop_reason: int | str | None


class RunAnswer:
    """Listens to one request of ``run`` and collects its outputs.

    It leaves ``followers`` if it ends before the request. ``finish`` is ``None`` until the answer is complete;
    ``error`` is set if it never will be. ``cached_tokens``: the tokens of the prompt that needed no computing.
    """

    def __init__(self, run: Run, choice: int, followers: Followers, meter: RequestMeter) -> None:
        work = run.work
        self.choice = choice
        self.followers = followers
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish: str | None = None
        self.stop_reason: int | str | None = None
        self.cached_tokens = 0
        self.pooled: Sequence[float] = ()
        self.kv_transfer_params: Mapping[str, Any] | None = None
        self.error: RequestError | None = None
        self._parts: list[str] = []
        self._meter = meter
        self._run = run
        self._stops = StopStrings(work.stops, work.include_stop) if work.stops else None
        self._min_tokens = work.asked.min_tokens
        self._shows_stop = work.include_stop

    @property
    def text(self) -> str:
        """The text so far, without the part that stop strings hold back."""
        return "".join(self._parts)

    @property
    def ended(self) -> bool:
        return self.finish is not None or self.error is not None

    def on_scheduled(self, now: float) -> None:
        self._meter.scheduled(now)

    def on_output(self, output: EngineCoreOutput, now: float) -> None:
        token_ids, finish = output.new_token_ids, output.finish_reason
        if finish == "abort" and isinstance(output.stop_reason, str) and not self.token_ids:
            self._meter.finished("error", now)
            self._fail(InvalidRequest(output.stop_reason))
            return
        text, stop = "", None
        logprobs: Sequence[TokenLogprobs] = ()
        if token_ids:
            text, count, stop = self._read(token_ids, finish)
            if count < len(token_ids):
                token_ids = token_ids[:count]
            if output.new_logprobs is not None:
                logprobs = output.new_logprobs[:count]
                self.logprobs += logprobs
            self._meter.tokens(count, output.num_cached_tokens, now)
            self.token_ids += token_ids
            self._parts.append(text)
            self.cached_tokens = output.num_cached_tokens
        if stop is not None and finish is None:
            self.followers.leave(self, RequestStatus.FINISHED_STOPPED)
        if stop is not None or finish is not None:
            self._finish(output, stop, now)
        if self._run.streams:
            self._run.push(Piece(self.choice, text, token_ids, logprobs, self.finish, self.stop_reason))
        if self.finish is not None:
            self._run.answer_ended()

    def on_error(self, error: RequestError) -> None:
        self._fail(error)

    def abort(self, now: float) -> None:
        self.followers.leave(self)
        self._meter.finished("abort", now)

    def _read(self, token_ids: Sequence[int], finish: str | None) -> tuple[str, int, str | None]:
        """Return the text to show, how many tokens count, and the stop string that cut off the others."""
        if self._stops is None and finish is None and len(token_ids) == 1:
            return piece_of(token_ids[0]), 1, None
        shown = []
        for number, token in enumerate(token_ids, 1):
            last = finish is not None and number == len(token_ids)
            hidden = last and finish == "stop" and not self._shows_stop
            text = "" if hidden else piece_of(token)
            stop = None
            if self._stops is not None:
                if len(self.token_ids) + number <= self._min_tokens:
                    text = self._stops.skip(text)
                else:
                    text, stop = self._stops.feed(text, last)
            shown.append(text)
            if stop is not None:
                return "".join(shown), number, stop
        return "".join(shown), len(token_ids), None

    def _finish(self, output: EngineCoreOutput, stop: str | None, now: float) -> None:
        self.finish = "stop" if stop is not None else output.finish_reason
        self.stop_reason = stop if stop is not None else output.stop_reason
        self.kv_transfer_params = output.kv_transfer_params
        self.pooled = output.pooling_output or ()
        assert self.finish is not None
        self._meter.finished(self.finish, now)

    def _fail(self, error: RequestError) -> None:
        self.error = error
        self._run.answer_ended()


class Run:
    """One run of some work. ``streams``: its answers are read piece by piece.

    The end of the ``with`` block aborts the requests that have not finished. Entering the block raises
    ``InvalidRequest`` for work that can never be done, ``EngineFailed`` after a failure, and ``NotFound`` if the
    request to follow is not here.
    """

    def __init__(self, work: Work, engine: BatchingEngine, metrics: Metrics, *, streams: bool = False) -> None:
        self.work = work
        self.answers: Sequence[RunAnswer] = ()
        self._engine = engine
        self._metrics = metrics
        self.streams = streams
        self._pieces: deque[Piece] = deque()
        self._num_delivered = 0
        self._num_unfinished = work.size
        self._changed = asyncio.Event()

    def __enter__(self) -> Run:
        answers: list[RunAnswer] = []
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
        return sum(answer.cached_tokens for answer in self.answers[:: self.work.choices])

    @property
    def completion_tokens(self) -> int:
        """The tokens of all answers so far; of streamed answers, those delivered."""
        return self._num_delivered if self.streams else sum(len(answer.token_ids) for answer in self.answers)

    async def finished(self) -> Sequence[RunAnswer]:
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

    def _begin(self, answers: list[RunAnswer], number: int) -> None:
        engine = self._engine
        request_id = self.work.id if self.work.size == 1 else f"{self.work.id}-{number}"
        if engine.is_known(request_id):
            request_id = f"{request_id}+{random.getrandbits(32):08x}"
        request = self.work.request(number, request_id)
        followers = Followers(request_id, engine)
        answer = self._answer(number, followers, len(request.prompt_token_ids))
        engine.add_request(request, followers)
        answers.append(answer)

    def _answer(self, number: int, followers: Followers, prompt_tokens: int) -> RunAnswer:
        meter = RequestMeter(self._metrics, self._engine.clock.now(), prompt_tokens)
        answer = RunAnswer(self, number, followers, meter)
        followers.join(answer)
        return answer

    def _follow(self, answers: list[RunAnswer], request_id: str) -> None:
        """Join the followers of a request that migrated here, and catch up with the tokens after the prompt."""
        request, followers = self._engine.state.requests.get(request_id), self._engine.followers(request_id)
        if request is None or followers is None or not followers.has_moved_in:
            raise NotFound(f"No request '{request_id}' has migrated here and still runs")
        prompt, tokens = self.work.prompts[0].token_ids, request.all_token_ids
        if self.work.size > 1 or tokens[: len(prompt)] != prompt:
            raise InvalidRequest(f"The request '{request_id}' does not continue this prompt")
        answers.append(self._answer(0, followers, 0))
        if made := tokens[len(prompt) :]:
            answers[0].on_output(EngineCoreOutput(request_id, tuple(made)), self._engine.clock.now())

    def push(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._changed.set()

    def answer_ended(self) -> None:
        self._num_unfinished -= 1
        if not self._num_unfinished:
            self._changed.set()

    async def _wait(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _raise_error(self) -> None:
        for answer in self.answers:
            if answer.error is not None:
                raise answer.error

    def _abort(self) -> None:
        if not self._num_unfinished:
            return
        now = self._engine.clock.now()
        for answer in self.answers:
            if not answer.ended:
                answer.abort(now)
