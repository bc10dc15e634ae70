"""Extractors: read a request's requirements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from enginehouse.domain.requirements import InferenceRequest, Requirements


class Extractor(ABC):
    """Sets some of a request's requirements. All installed extractors run on every request, in order.

    Raise ``InvalidRequest`` to refuse a request (400). Any other exception becomes ``plugin_failed`` (500).
    """

    @abstractmethod
    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        """Set the ``requirements`` that ``request`` determines. Runs on the event loop, so it must not block."""

    def joined(self, following: Sequence[Extractor]) -> Extractor | None:
        """Return one extractor that does the work of this one and of all ``following``; ``None`` if there is none.

        Called once, at start, on the first of the installed extractors. One call instead of several saves time in every
        request. The gateway asks only bundled extractors, because it checks the results of others one by one.
        """
        return None
