"""Places outside of device memory from which keys and values can be had."""

from __future__ import annotations

from abc import ABC, abstractmethod

from enginehouse_sim.scheduler.request import RequestState


class KvSource(ABC):
    """One such place, as one engine sees it. ``load_async``: what is loaded arrives between steps, not within one."""

    load_async: bool = True

    @property
    @abstractmethod
    def version(self) -> int:
        """Another number than before if what was matched earlier may be gone by now."""

    @abstractmethod
    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """How many tokens behind the first ``num_computed_tokens`` can be had. Has no effect."""

    @abstractmethod
    def seconds(self, num_tokens: int) -> float:
        """How long the keys and values of so many tokens are on their way."""

    def claim(self, request: RequestState, num_tokens: int) -> None:
        """The request has blocks now: ``num_tokens`` are fetched from here, or 0 if it does not need this place."""

    def delivered(self, request_id: str) -> None:
        """What the request claimed is in device memory."""

    def forget(self, request: RequestState) -> None:
        """The request ended, and nothing is on its way to it."""
