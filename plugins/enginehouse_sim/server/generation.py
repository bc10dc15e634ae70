"""From the engine's tokens to the text of an answer: stop strings applied, and everything counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from enginehouse_sim.clock import Clock
from enginehouse_sim.server.engine import Engine, Token, Work
from enginehouse_sim.server.metrics import Metrics, RequestMeter
from enginehouse_sim.server.stops import StopStrings


class Piece(msgspec.Struct, frozen=True, gc=False):
    """What one token adds to an answer. ``text`` may be empty; ``finish`` says why the answer ends here."""

    choice: int
    text: str
    finish: str | None


class Answer(msgspec.Struct):
    """A whole continuation."""

    text: str = ""
    finish: str | None = None


class Generator:
    """Runs work on the engine."""

    def __init__(self, engine: Engine, metrics: Metrics, clock: Clock) -> None:
        self._engine = engine
        self._metrics = metrics
        self._clock = clock

    async def pieces(self, work: Work, stops: Sequence[str] = ()) -> AsyncGenerator[Piece, None]:
        """One piece for each token that counts, until every continuation has ended."""
        meter = RequestMeter(self._metrics, self._clock, work.prompt_tokens)
        going = {choice: StopStrings(stops) for choice in range(len(work.prompts) * work.choices)}
        finish = "length"
        try:
            async with aclosing(self._engine.generate(work)) as tokens:
                async for token in tokens:
                    if token.choice not in going:
                        continue
                    meter.token()
                    piece = _piece(token, going[token.choice])
                    if piece.finish:
                        finish = piece.finish
                        del going[token.choice]
                    yield piece
                    if not going:
                        break
        except BaseException:
            meter.finished("abort")
            raise
        meter.finished(finish)

    async def answers(self, work: Work, stops: Sequence[str] = ()) -> tuple[list[Answer], int]:
        """The whole continuations, and the number of tokens in them all."""
        answers = [Answer() for _ in range(len(work.prompts) * work.choices)]
        tokens = 0
        async with aclosing(self.pieces(work, stops)) as pieces:
            async for piece in pieces:
                tokens += 1
                answers[piece.choice].text += piece.text
                answers[piece.choice].finish = piece.finish
        return answers, tokens


def _piece(token: Token, stops: StopStrings) -> Piece:
    text, stopped = stops.feed(token.text, token.finish is not None)
    return Piece(token.choice, text, "stop" if stopped else token.finish)
