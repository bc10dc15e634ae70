"""Grammars for the scheduler: compilation, then a row of allowed tokens for each step of a request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.grammar.grammar import Matcher, grammar_of
from enginehouse_sim.simulator.grammar.rows import Row
from enginehouse_sim.simulator.grammar.structured_output import StructuredOutputManager

_MOST_KEPT = 256


class GrammarManager(StructuredOutputManager):
    """Caches the grammars used last, and keeps a matcher for each request that has one.

    A grammar is ready ``compile_time`` after its first use, on the clock ``now``: in seconds, or in steps.
    """

    def __init__(self, compile_time: float = 0.0, now: Callable[[], float] = lambda: 0.0) -> None:
        self._compile_time = compile_time
        self._now = now
        self._compilations: OrderedDict[str, _Compilation] = OrderedDict()
        self._waiting: dict[str, _Compilation] = {}
        self._matchers: dict[str, Matcher] = {}

    def grammar_init(self, request: RequestState) -> None:
        text = request.structured_output
        if text is None:
            return
        if text not in self._compilations:
            self._compilations[text] = _Compilation(text, self._now() + self._compile_time)
        self._waiting[request.request_id] = self._compilations[text]
        self._compilations.move_to_end(text)
        if len(self._compilations) > _MOST_KEPT:
            self._compilations.popitem(last=False)

    def is_ready(self, request: RequestState) -> bool:
        """Whether the grammar is compiled. If so, its matcher has accepted the outputs that the request came with.

        Raises ``ValueError`` if the grammar cannot be compiled, or does not allow these outputs.
        """
        compilation = self._waiting.get(request.request_id)
        if compilation is None:
            return True
        if self._now() < compilation.due:
            return False
        matcher = Matcher(grammar_of(compilation.text))
        if matcher.accept(request.output_token_ids) < len(request.output_token_ids):
            raise ValueError(
                f"The grammar of request {request.request_id} does not allow the answer that it has so far"
            )
        self._matchers[request.request_id] = matcher
        del self._waiting[request.request_id]
        return True

    def grammar_bitmask(
        self, requests: Sequence[RequestState], scheduled_spec_tokens: Mapping[str, Sequence[int]]
    ) -> tuple[Mapping[str, int], Sequence[Row]]:
        first: dict[str, int] = {}
        rows: list[Row] = []
        for request in requests:
            if request.request_id in self._matchers:
                first[request.request_id] = len(rows)
                rows.extend(self._rows(request, scheduled_spec_tokens.get(request.request_id, ())))
        return first, rows

    def _rows(self, request: RequestState, drafts: Sequence[int]) -> list[Row]:
        matcher = self._matchers[request.request_id]
        matcher = matcher.copy() if drafts else matcher
        made = len(request.output_token_ids)
        rows = []
        for number, draft in enumerate((*drafts, None), start=made):
            rows.append(matcher.row(request.max_tokens - number, may_end=number >= request.min_tokens))
            if draft is not None:
                matcher.accept((draft,))
        return rows

    def should_advance(self, request: RequestState) -> bool:
        return request.request_id in self._matchers

    def accept_tokens(self, request: RequestState, token_ids: Sequence[int]) -> bool:
        """Advance by all tokens, or by none if one is not allowed."""
        matcher = self._matchers[request.request_id].copy()
        if matcher.accept(token_ids) < len(token_ids):
            return False
        self._matchers[request.request_id] = matcher
        return True

    def validate_tokens(self, request: RequestState, token_ids: Sequence[int]) -> Sequence[int]:
        return token_ids[: self._matchers[request.request_id].copy().accept(token_ids)]

    def finished(self, request: RequestState) -> None:
        self._waiting.pop(request.request_id, None)
        self._matchers.pop(request.request_id, None)


class _Compilation(NamedTuple):
    """A grammar that is ready at ``due``."""

    text: str
    due: float
