"""Extractors: read a request's requirements."""

from __future__ import annotations

from abc import ABC, abstractmethod

from enginehouse.domain.request import InferenceRequest
from enginehouse.domain.requirements import Requirements


class Extractor(ABC):
    """Sets some of a request's requirements. All installed extractors run on every request, in order.

    Raise ``InvalidRequest`` to refuse a request (400). Any other exception becomes ``plugin_failed`` (500).
    """

    @abstractmethod
    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        """Set in ``requirements`` what ``request`` needs. Runs on the event loop, so it must not block."""
