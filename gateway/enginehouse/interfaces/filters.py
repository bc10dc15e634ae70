"""Filters: decide which candidates may serve a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements


class Filter(ABC):
    """Drops candidates that must not serve a request.

    It gets all candidates of a model at once. It keeps their order, adds none and changes none. Raise a
    ``RequestError`` to refuse the request; any other exception becomes ``plugin_failed`` (500).
    """

    prefers: ClassVar[bool] = False
    """Whether it only prefers some candidates: it runs after the filters that do not, and if it would drop all of the
    candidates, the gateway keeps them."""

    @abstractmethod
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that may serve the request. Must be pure: the same question gets the same answer."""

    @abstractmethod
    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        """Return the reason for dropping ``candidate``, for people to read. Called only for explanations."""

    def mark(self, requirements: Requirements, headers: Headers, rehearsal: bool) -> None:
        """Set what the headers of a request and its ``caller`` say, once, before any decision about it.

        No move of a stream goes around a filter that has this method. A ``rehearsal`` only explains, so it must not
        change what later requests get.
        """

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        """Return the capabilities that ``candidate`` lacks. Called only if no candidate is left.

        If a filter returns any, the error is ``capability_mismatch`` (400), else ``no_healthy_backend`` (503).
        """
        return ()

    def refusal(self, requirements: Requirements, candidates: Sequence[Candidate]) -> RequestError | None:
        """Return the error if this filter drops the last ``candidates``; ``None`` for the usual one."""
        return None

    def joined(self, following: Sequence[Filter]) -> Filter | None:
        """Return one filter that keeps what this one and all ``following`` keep; ``None`` if there is none.

        Called once, at start, on the first of the configured filters. One call instead of several saves time in every
        request. The gateway uses only ``keep`` of the joined filter: if that drops a candidate, it calls the filters
        one by one. It asks only bundled filters.
        """
        return None
