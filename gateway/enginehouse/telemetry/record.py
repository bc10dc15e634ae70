"""The size of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from enginehouse.domain.request_record import EngineTimings


@dataclass(init=False)
class Tokens:
    """The tokens of a request, as its engine counted them. ``cached``: of the prompt, if the engine says so."""

    input: int
    output: int
    cached: int | None
    timings: EngineTimings | None

    def __init__(
        self, input: int, output: int, cached: int | None = None, timings: EngineTimings | None = None
    ) -> None:
        self.input = input
        self.output = output
        self.cached = cached
        self.timings = timings


AnswerSize = tuple[int, int, Tokens | None]
"""The bytes, the events and, if the engine counted them, the tokens of an answer, as far as the client got it."""
NO_ANSWER: AnswerSize = (0, 0, None)
