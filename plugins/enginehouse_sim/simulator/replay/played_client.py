"""The clients of a replay."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse_sim.simulator.replay.figures.answer import AnswerRecord, count_gap
from enginehouse_sim.simulator.replay.figures.report import Record
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualClient


class PlayedClient(VirtualClient):
    """Sends one request of a trace, and records the answer that it gets.

    ``answer``: the whole of it, whichever engines made its parts. ``is_broken``: its engine has just broken it off.
    ``on_end`` is called once, when nothing more will come, with the code of the error that ends the answer, if any.
    """

    __slots__ = ("_now", "_on_end", "_record", "answer", "is_broken", "number", "trace")

    def __init__(
        self,
        trace: TraceRequest,
        number: int,
        record: Record,
        now: Callable[[], float],
        on_end: Callable[[PlayedClient, str], None],
    ) -> None:
        self.trace = trace
        self.number = number
        self.answer = AnswerRecord(now(), trace.input_length)
        self.is_broken = False
        self._record = record
        self._now = now
        self._on_end = on_end

    def answered(self) -> None:
        self.answer.first_token = self._now()

    def ended(self, status: int, code: str) -> None:
        if code:
            self._record.reject(code)
            self._record.broken += status == 200
        else:
            self._record.finish(self.answer)
        self._on_end(self, code)

    def begins_part(self, at: float, cached_tokens: int) -> None:
        """Note that an engine has made its first token of the answer ``at`` a time."""
        answer = self.answer
        if not answer.output_tokens:
            answer.cached_tokens = cached_tokens
            return
        gap = at - answer.last_token
        count_gap(self._record.gaps, gap, 1)
        if not self.is_broken:
            self._record.move_gaps.append(gap)
        self.is_broken = False

    def received(self, tokens: int, last_token: float) -> None:
        """Count tokens that the gateway has got, the last one at that time."""
        self.answer.output_tokens += tokens
        self.answer.last_token = last_token
