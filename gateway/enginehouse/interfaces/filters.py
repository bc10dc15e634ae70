"""Filters: decide which candidates may serve a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements


class Filter(ABC):
    """Drops candidates that must not serve a request.

    All candidates of a model are filtered at once. A filter keeps their order, adds none and changes none. Raise a
    ``RequestError`` to refuse the request; any other exception becomes ``plugin_failed`` (500).
    """

    @abstractmethod
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that may serve the request. Must be pure: the same question gets the same answer."""

    @abstractmethod
    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        """Say why ``candidate`` was dropped, as people should read it. Called only for explanations."""

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        """Name the capabilities that ``candidate`` lacks. Called only if no candidate is left.

        If a filter names any, the error is ``capability_mismatch`` (400), else ``no_healthy_backend`` (503).
        """
        return ()

    def joined(self, following: Sequence[Filter]) -> Filter | None:
        """Return one filter that keeps what this one and all ``following`` keep; ``None`` if there is none.

        Called once, at start, on the first of the configured filters. It saves calls where speed matters: only its
        ``keep`` is used, and only where it drops nothing. Only filters that come with Enginehouse are asked.
        """
        return None
