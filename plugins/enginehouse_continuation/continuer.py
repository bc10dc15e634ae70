"""Keeps streams, and continues them at other engines: after they broke off, or because they move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from enginehouse import Candidate, Continuer, RequestError
from enginehouse.continuers import (
    AnswerDiffers,
    ContinuationWay,
    KeptStream,
    NewShare,
    Question,
    Rest,
    StreamMove,
    Translator,
)
from enginehouse.drivers import (
    Continuation,
    DriverSupport,
    EngineClient,
    StreamTraits,
    SupportsContinuation,
)
from enginehouse.errors import CannotContinue
from enginehouse_continuation.gathered_answer import MOST_GATHERED, GatheredAnswer
from enginehouse_continuation.progress import (
    DONE,
    AnswerPiece,
    ChunkChoice,
    SavedStream,
    StreamChunk,
    choices_of,
    read_chunks,
)
from enginehouse_continuation.reading_ahead import ReadingAhead, ReadingTurn
from enginehouse_continuation.restrictions import PATHS, number, why_not
from enginehouse_continuation.stream_history import MOST_KEPT, StreamHistory
from enginehouse_continuation.typed_history import TypedHistory, typed_answer
from enginehouse_kit.added_fields import cutter, one_token
from enginehouse_kit.protocols import Protocol, ProtocolRequest

_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_saved_stream: Final = msgspec.msgpack.Decoder(SavedStream).decode
_EMPTY: Final[tuple[object, ...]] = ("", None, [])


class StreamContinuer(Continuer):
    """Continues streams after their tokens, after their text, or from the beginning, as far as drivers can."""

    def __init__(self) -> None:
        self._readings: dict[str, ReadingAhead] = {}

    def keep(
        self,
        path: str,
        body: bytes,
        driver: SupportsContinuation,
        share: NewShare,
        protocol: Protocol | None = None,
        knows: Callable[[str], bool] | None = None,
    ) -> tuple[KeptStream | None, bytes]:
        if protocol is None:
            asked = driver.continuable(path, body)
            return StreamHistory(path, body, driver.streams, share(MOST_KEPT), added=asked is not body), asked
        assert knows is not None
        answer, as_chat = typed_answer(protocol, path), partial(_as_chat, protocol, path, knows)
        if answer is None:
            return None, body
        return TypedHistory(answer, body, driver.streams, as_chat, share(MOST_KEPT)), body

    def rest(self, kept: KeptStream, rule: str) -> Rest:
        assert isinstance(kept, StreamHistory)
        return RestOfStream(kept, rule)

    async def move(self, kept: KeptStream, move: StreamMove) -> None:
        """Have the destination read the text so far, while the source still answers, and then cut.

        The reading is a request for one token that fills the prefix cache. If engines have moved the request
        themselves, the destination need not read anything first, and is asked for the rest.
        """
        assert isinstance(kept, StreamHistory)
        turn: ReadingTurn | None = None
        reading = 0.0
        try:
            if not move.engine_request:
                turn = self._turn(kept, move)
                await move.unless_ended(turn.begin(move.timeout / 2))
            await move.reserve()
            move.check()
            if turn is not None and move.driver.streams.caches_prefixes:
                reading = await _read_ahead(kept, move)
            gap = await move.cut(partial(_ask, kept, move, move.engine_request))
            if turn is not None and reading:
                turn.readings.note(turn.tokens, reading, gap)
        finally:
            if turn is not None:
                turn.end()

    def _turn(self, kept: KeptStream, move: StreamMove) -> ReadingTurn:
        """The turn of the text at the destination. Its length is estimated where no engine has told it."""
        known, backend = kept.tokens(), move.candidate.backend
        tokens = max(1, (known.prompt or move.estimated_tokens) + (known.output or 0))
        return ReadingTurn(self._readings.setdefault(backend, ReadingAhead(backend)), tokens)

    def restore(
        self, path: str, saved: bytes, drivers: Mapping[str, DriverSupport], share: NewShare
    ) -> tuple[KeptStream, str]:
        stream = _saved_stream(saved)
        driver = drivers.get(stream.backend)
        if driver is None:
            raise CannotContinue(f"Backend '{stream.backend}', which had begun the answer, is no longer configured")
        history = StreamHistory(path, stream.body, driver.continuation.streams, share(MOST_KEPT), added=False)
        history.restore(stream)
        return history, stream.model

    def gathered(self, path: str, body: bytes, share: NewShare) -> GatheredAnswer | None:
        try:
            continuable = path in PATHS and not why_not(_object(body))
        except (ValueError, RecursionError):  # an engine may read what the gateway does not
            return None
        return GatheredAnswer(share(MOST_GATHERED)) if continuable else None


async def _read_ahead(kept: StreamHistory, move: StreamMove) -> float:
    """Have the destination read the text so far; returns for how many seconds it did."""
    asked = await _ask(kept, move, "")
    began = move.now()
    response = await move.unless_ended(move.engine.request("POST", asked.path, one_token(asked.body)))
    if response is not None and response.status != 200:
        raise CannotContinue(f"Backend '{move.candidate.backend}' answered {response.status} to the text so far")
    return move.now() - began


async def _ask(kept: StreamHistory, move: StreamMove, engine_request: str) -> Question:
    driver = move.driver
    continuation = await continuation_of(kept, kept.body_for(move.candidate), driver, move.engine)
    if engine_request:
        continuation = driver.following(continuation, engine_request)
    translator = ContinuationTranslator(kept, continuation, driver.streams)
    return Question(continuation.path, continuation.body, "tokens" if continuation.exact else "text", translator)


def _as_chat(protocol: Protocol, path: str, knows: Callable[[str], bool], body: bytes) -> bytes:
    """The body for ``path`` as that of a chat. Raises ``RequestError`` for what no chat can say."""
    try:
        made = protocol.translate(ProtocolRequest(path, body, knows))
        if isinstance(made, Awaitable):
            if isinstance(made, Coroutine):
                made.close()
            raise CannotContinue("Its conversation is kept by its engine")
        return made.body
    except RequestError:
        raise
    except Exception as error:
        raise CannotContinue(f"the protocol '{protocol.name}' failed") from error


# --- the rest of a stream, and what the client gets of it


class RestOfStream(Rest):
    """Asks for the rest of the stream of ``history``: after the tokens, after the text, or from the beginning.

    ``rule``: ``restart`` tries only the last way.
    """

    def __init__(self, history: StreamHistory, rule: str) -> None:
        self._history = history
        self._why = ""
        self._ways: list[ContinuationWay] = ["tokens", "text", "restart"] if rule == "continue" else ["restart"]

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
        self._usage_always, self._usage_at_end = history.wants_usage_always, history.wants_usage

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
            return self._history.write_usage(usage) if usage is not None and self._usage_at_end else b""
        [choice] = chunk.choices
        if self._progress.prompt_ids is None:
            self._progress.learn_prompt(chunk.prompt_token_ids)
            self._progress.learn_prompt(choice.prompt_token_ids)
        if choice.delta is not None and (other := choice.delta.other):
            return self._pass_on(other, data)
        # llama.cpp's usage is in a completion's last choice.
        shown = self._usage_always or (self._usage_at_end and choice.finish_reason is not None)
        return self._choice(choice, usage if shown else None)

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
        events, cut = self._history.write_choices(choices_of(data)), cutter(("token_ids",))
        return events if cut is None else cut(events)

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
            yield DONE if chunk is None else self._event(_object(data))
            self.has_begun = self.has_begun or chunk is None

    def _event(self, fields: dict[str, Any]) -> bytes:
        """The chunk for the client; empty for one that has nothing new."""
        had_choices = bool(fields.get("choices"))
        fields["choices"] = [choice for choice in fields.get("choices") or () if self._is_new(choice)]
        if had_choices and not fields["choices"] and not fields.get("usage"):
            return b""
        self.has_begun = True
        return b"data: " + msgspec.json.encode({**fields, **(self._history.common or {})}) + b"\n\n"

    def _is_new(self, choice: dict[str, Any]) -> bool:
        """Whether ``choice`` is more than a role that the client knows, which is removed from it."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return True
        if choice.get("index", 0) in self._known_roles:
            delta.pop("role", None)
        return choice.get("finish_reason") is not None or any(value not in _EMPTY for value in delta.values())
