"""Asks other engines for the rest of a stream that broke off, and makes the client's events of their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from enginehouse import Candidate, RequestError
from enginehouse.continuers import AnswerDiffers, ContinuationWay, Question, Rest, Translator, cutter
from enginehouse.drivers import Continuation, EngineClient, StreamTraits, SupportsContinuation
from enginehouse.errors import CannotContinue
from enginehouse_continuation.progress import DONE, AnswerPiece, ChunkChoice, StreamChunk, choices_of, read_chunks
from enginehouse_continuation.restrictions import number
from enginehouse_continuation.stream_history import StreamHistory


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


_fields = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.encode
_EMPTY: tuple[object, ...] = ("", None, [])


def _cut_ids(events: bytes) -> bytes:
    cut = cutter(("token_ids",))
    assert cut is not None
    return cut(events)


class ContinuationTranslator(Translator):
    """Translates the rest of an answer, of which the client has the first part.

    Until it has begun, ``history`` is as it was.
    """

    def __init__(self, history: StreamHistory, continuation: Continuation, traits: StreamTraits) -> None:
        self.path, self.tokens = continuation.path, continuation.tokens
        self._history = history
        self._traits = traits
        self._progress = history.progress.copy()
        self._progress.resume(continuation.tokens, continuation.skip, exact=continuation.exact)
        if not traits.token_by_token:
            self._progress.ends = None

    def translate(self, piece: bytes) -> Iterator[bytes]:
        for chunk, data in read_chunks(piece):
            yield self._end() if chunk is None else self._event(chunk, data)
        if self.has_begun:
            self._history.count_kept()
            if self._history.why:
                self._progress.forget()

    def _event(self, chunk: StreamChunk, data: bytes) -> bytes:
        usage = None if chunk.usage is None else self._usage(chunk.usage)
        if not chunk.choices:
            return self._history.write_usage(usage) if usage is not None and self._history.wants_usage else b""
        [choice] = chunk.choices
        self._progress.learn_prompt(chunk.prompt_token_ids)
        self._progress.learn_prompt(choice.prompt_token_ids)
        if choice.delta is not None and (other := choice.delta.other):
            return self._pass_on(other, data)
        return self._choice(choice, usage if self._shows_usage(choice) else None)

    def _shows_usage(self, choice: ChunkChoice) -> bool:
        """Whether the client wants the usage together with ``choice``. llama.cpp's is in a completion's last one."""
        history = self._history
        return history.wants_usage_always or (history.wants_usage and choice.finish_reason is not None)

    def _choice(self, choice: ChunkChoice, usage: Mapping[str, Any] | None) -> bytes:
        progress, finish = self._progress, choice.finish_reason
        text, ids = progress.add(choice.shown, choice.ids)
        if finish is not None and progress.behind:
            raise AnswerDiffers
        shown_ids = ids if progress.shows_ids else None
        if not (text or shown_ids or finish):
            return b""
        self._begin()
        self._history.finish = finish
        return self._history.write_piece(AnswerPiece(text, shown_ids, finish, choice.stop_reason, usage))

    def _pass_on(self, other: str, data: bytes) -> bytes:
        """Pass on what has no text, if the client has all the text before it."""
        if self._progress.behind or self.tokens:
            raise AnswerDiffers
        self._begin()
        self._history.discard(f"its answer has {other}")
        return _cut_ids(self._history.write_choices(choices_of(data)))

    def _usage(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The usage of the whole answer, after that of its last part."""
        before, history = self.tokens, self._history
        made = before + (number(usage, "completion_tokens") or 0)
        self._progress.counted = made
        prompt = history.prompt_tokens
        if prompt is None:
            prompt = max(0, (number(usage, "prompt_tokens") or 0) - before)
        return history.usage_of_whole(usage, prompt, made)

    def _end(self) -> bytes:
        if not self.has_begun:
            raise AnswerDiffers
        self._history.ended = True
        return self._history.write_end(None if self._history.why else self._progress.text)

    def _begin(self) -> None:
        if not self.has_begun:
            self.has_begun = True
            self._history.progress = self._progress
            self._history.traits = self._traits


class AnswerAnew(Translator):
    """Translates the answer to the whole request, for a client that knows only the roles of it.

    The chunks keep the id that the client knows, and tell no role twice. Nothing is compared, so the answer may be of
    any kind.
    """

    def __init__(self, history: StreamHistory) -> None:
        self.path, self.tokens = history.path, 0
        self._history = history
        self._known_roles = history.roles

    def translate(self, piece: bytes) -> Iterator[bytes]:
        history = self._history
        history.note(piece)
        for chunk, data in read_chunks(piece if history.cut is None else history.cut(piece)):
            yield DONE if chunk is None else self._event(_fields(data))
            self.has_begun = self.has_begun or chunk is None

    def _event(self, fields: dict[str, Any]) -> bytes:
        """The chunk for the client; empty for one that has nothing new."""
        had_choices = bool(fields.get("choices"))
        fields["choices"] = [choice for choice in fields.get("choices") or () if self._is_new(choice)]
        if had_choices and not fields["choices"] and not fields.get("usage"):
            return b""
        self.has_begun = True
        return b"data: " + _encode({**fields, **(self._history.common or {})}) + b"\n\n"

    def _is_new(self, choice: dict[str, Any]) -> bool:
        """Whether ``choice`` is more than a role that the client knows, which is removed from it."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return True
        if choice.get("index", 0) in self._known_roles:
            delta.pop("role", None)
        return choice.get("finish_reason") is not None or any(value not in _EMPTY for value in delta.values())
