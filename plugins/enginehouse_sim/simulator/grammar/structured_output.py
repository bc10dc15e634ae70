"""The scheduler's view of structured output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from enginehouse_sim.simulator.domain.request import RequestState


class StructuredOutputManager(ABC):
    """Compiles grammars, and tracks each request's state in its grammar; vLLM's ``StructuredOutputManager``."""

    @abstractmethod
    def grammar_init(self, request: RequestState) -> None:
        """Begin to compile the request's grammar."""

    @abstractmethod
    def is_ready(self, request: RequestState) -> bool:
        """Whether the grammar is compiled. Raises ``ValueError`` if it cannot be."""

    @abstractmethod
    def grammar_bitmask(
        self, requests: Sequence[RequestState], scheduled_spec_tokens: Mapping[str, Sequence[int]]
    ) -> tuple[Mapping[str, int], Sequence[frozenset[int]]]:
        """The index of each request's first row, and the rows of allowed tokens.

        A request with drafts has one row for each draft and one after the last.
        """

    @abstractmethod
    def should_advance(self, request: RequestState) -> bool:
        """Whether the grammar must accept the request's outputs."""

    @abstractmethod
    def accept_tokens(self, request: RequestState, token_ids: Sequence[int]) -> bool:
        """Advance the grammar. Return ``False`` if it does not allow the tokens."""

    @abstractmethod
    def validate_tokens(self, request: RequestState, token_ids: Sequence[int]) -> Sequence[int]:
        """The drafts before the first one that the grammar does not allow."""

    @abstractmethod
    def finished(self, request: RequestState) -> None:
        """Drop the request's state."""
