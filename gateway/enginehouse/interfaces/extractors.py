"""Extractors: from a request to what it needs."""

from __future__ import annotations

from typing import Protocol

from enginehouse.domain.request import InferenceRequest
from enginehouse.domain.requirements import Requirements


class Extractor(Protocol):
    """Fills in part of ``requirements`` from a request. All installed extractors run, in order, on every request.

    An exception is answered as a 500 that names the plugin; raise ``InvalidRequest`` for a request that is wrong.
    """

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        """Write to ``requirements`` what ``request`` needs. Must not block."""
