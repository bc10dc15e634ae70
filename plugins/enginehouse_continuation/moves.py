"""Moves live streams to other engines."""

from __future__ import annotations

from functools import partial

from enginehouse.continuers import KeptStream, Question, StreamMove
from enginehouse.drivers import one_token
from enginehouse.errors import CannotContinue
from enginehouse_continuation.reading_ahead import ReadingAhead, ReadingTurn
from enginehouse_continuation.rest import ContinuationTranslator, continuation_of
from enginehouse_continuation.stream_history import StreamHistory


class Moves:
    """Moves streams one by one.

    The destination first reads the text so far, in a request for one token that fills its prefix cache, while the
    source still answers. Then comes the cut. If engines have moved the request themselves, the destination need not
    read anything first, and is asked for the rest.
    """

    def __init__(self) -> None:
        self._readings: dict[str, ReadingAhead] = {}

    async def move(self, move: StreamMove) -> None:
        """Carry ``move`` out. Raises as ``Continuer.move`` does."""
        turn: ReadingTurn | None = None
        reading = 0.0
        try:
            if not move.engine_request:
                turn = self._turn(move)
                await move.unless_ended(turn.begin(move.timeout / 2))
            await move.reserve()
            kept = move.kept()
            if turn is not None and move.driver.streams.caches_prefixes:
                reading = await _read_ahead(move, kept)
            gap = await move.cut(partial(_ask, move, move.engine_request))
            if turn is not None and reading:
                turn.readings.note(turn.tokens, reading, gap)
        finally:
            if turn is not None:
                turn.end()

    def _turn(self, move: StreamMove) -> ReadingTurn:
        """The turn of the text at the destination. Its length is estimated where no engine has told it."""
        known, backend = move.kept().tokens(), move.candidate.backend
        tokens = max(1, (known.prompt or move.estimated_tokens) + (known.output or 0))
        return ReadingTurn(self._readings.setdefault(backend, ReadingAhead(backend)), tokens)


async def _read_ahead(move: StreamMove, kept: KeptStream) -> float:
    """Have the destination read the text so far; returns for how many seconds it did."""
    asked = await _ask(move, "", kept)
    began = move.now()
    response = await move.unless_ended(move.engine.request("POST", asked.path, one_token(asked.body)))
    if response is not None and response.status != 200:
        raise CannotContinue(f"Backend '{move.candidate.backend}' answered {response.status} to the text so far")
    return move.now() - began


async def _ask(move: StreamMove, engine_request: str, kept: KeptStream) -> Question:
    assert isinstance(kept, StreamHistory)
    driver = move.driver
    continuation = await continuation_of(kept, kept.body_for(move.candidate), driver, move.engine)
    if engine_request:
        continuation = driver.following(continuation, engine_request)
    translator = ContinuationTranslator(kept, continuation, driver.streams)
    return Question(continuation.path, continuation.body, "tokens" if continuation.exact else "text", translator)
