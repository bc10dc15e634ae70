"""Asks other engines for the rest of a stream that broke off."""

from __future__ import annotations

import msgspec

from enginehouse import Candidate, RequestError
from enginehouse.continuers import ContinuationWay, Question, Rest
from enginehouse.drivers import Continuation, EngineClient, SupportsContinuation
from enginehouse.errors import CannotContinue
from enginehouse_continuation.stream_history import StreamHistory
from enginehouse_continuation.translator import AnswerAnew, ContinuationTranslator


class RestOfStream(Rest):
    """Asks for the rest of the stream of ``history``: after the tokens, after the text, or from the beginning.

    ``rule``: ``restart`` tries only the last way.
    """

    def __init__(self, history: StreamHistory, rule: str) -> None:
        self._history = history
        self._rule = rule
        self.begin()

    def begin(self) -> None:
        self._why = ""
        self._ways: list[ContinuationWay] = ["tokens", "text", "restart"] if self._rule == "continue" else ["restart"]

    async def ask(self, candidate: Candidate, driver: SupportsContinuation, engine: EngineClient) -> Question:
        while self._ways:
            way = self._ways.pop(0)
            try:
                return await self._try(way, candidate, driver, engine)
            except RequestError as error:
                self._why = self._why or error.message
        raise CannotContinue(f"Backend '{candidate.backend}' cannot continue it: {self._why or 'every way failed'}")

    async def _try(
        self, way: ContinuationWay, candidate: Candidate, driver: SupportsContinuation, engine: EngineClient
    ) -> Question:
        history = self._history
        history.read()
        if history.is_unanswered:
            self._ways = []
            body = history.begin_anew(driver, candidate)
            return Question(history.path, body, "restart", None if history.common is None else AnswerAnew(history))
        if way == "restart":
            if why := history.why_not_anew():
                raise CannotContinue(why)
            body = driver.continuable(history.path, history.body_for(candidate))
            continuation = Continuation(path=history.path, body=body, tokens=0, skip=history.progress.chars)
        else:
            body = history.body_for(candidate)
            continuation = await continuation_of(history, body, driver, engine, exact=way == "tokens")
            if way == "tokens" and not continuation.exact:  # the driver knows no tokens: this is the text already
                way = self._ways.pop(0)
        translator = ContinuationTranslator(history, continuation, driver.streams)
        return Question(continuation.path, continuation.body, way, translator)


async def continuation_of(
    history: StreamHistory, body: bytes, driver: SupportsContinuation, engine: EngineClient, *, exact: bool = True
) -> Continuation:
    """The request with which ``engine`` continues the stream; ``exact``: by its tokens, if the driver can.

    ``body``: the client's request, as that engine would get it.

    Raises ``CannotContinue``, or what the driver and the engine raise.
    """
    if why := history.why_not_continuable():
        raise CannotContinue(f"The stream cannot be continued: {why}")
    answer = history.partial(body)
    if not exact:
        answer = msgspec.structs.replace(answer, ids=None, pieces=None)
    answer = await driver.fill_in(engine, answer)
    if answer.prompt_ids is not None:
        history.progress.learn_prompt(answer.prompt_ids)
    return driver.continuation(answer)
