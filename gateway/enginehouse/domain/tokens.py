"""The tokens of a request."""

from __future__ import annotations

from dataclasses import dataclass

from enginehouse.domain.request_record import EngineTimings


@dataclass(init=False)
class Tokens:
    """The tokens of a request, as its engine counted them.

    - ``input``: of the prompt; 0 if the engine counted none.
    - ``output``: of the answer. If the engine counted none, the events of a stream that have text.
    - ``cached``: of the prompt, those that the engine had in its cache, if it says so.
    - ``timings``: what the engine measured itself, if it says so.
    """

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
