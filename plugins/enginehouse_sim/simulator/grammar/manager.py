"""Grammars for the scheduler: a row of allowed tokens for each step of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.grammar.grammar import Matcher, grammar_of
from enginehouse_sim.simulator.grammar.rows import Row


class GrammarManager:
    """Keeps a matcher for each request that has a grammar, as vLLM's ``StructuredOutputManager`` does."""

    def __init__(self) -> None:
        self._matchers: dict[str, Matcher] = {}

    def is_ready(self, request: RequestState) -> bool:
        """Whether the grammar is compiled. If so, its matcher has accepted the outputs that the request came with.

        Raises ``ValueError`` if the grammar cannot be compiled, or does not allow these outputs.
        """
        if request.structured_output is None or request.request_id in self._matchers:
            return True
        matcher = Matcher(grammar_of(request.structured_output))
        if matcher.accept(request.output_token_ids) < len(request.output_token_ids):
            raise ValueError(
                f"The grammar of request {request.request_id} does not allow the answer that it has so far"
            )
        self._matchers[request.request_id] = matcher
        return True

    def grammar_bitmask(
        self, requests: Sequence[RequestState], scheduled_spec_tokens: Mapping[str, Sequence[int]]
    ) -> tuple[Mapping[str, int], Sequence[Row]]:
        """The index of each request's first row, and the rows of allowed tokens.

        A request with drafts has one row for each draft and one after the last.
        """
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
        """Whether the grammar must accept the request's outputs."""
        return request.request_id in self._matchers

    def accept_tokens(self, request: RequestState, token_ids: Sequence[int]) -> bool:
        """Advance by all tokens; return ``False``, and advance by none, if one is not allowed."""
        matcher = self._matchers[request.request_id].copy()
        if matcher.accept(token_ids) < len(token_ids):
            return False
        self._matchers[request.request_id] = matcher
        return True

    def validate_tokens(self, request: RequestState, token_ids: Sequence[int]) -> Sequence[int]:
        """The drafts before the first one that the grammar does not allow."""
        return token_ids[: self._matchers[request.request_id].copy().accept(token_ids)]

    def finished(self, request: RequestState) -> None:
        """Drop the request's state."""
        self._matchers.pop(request.request_id, None)
