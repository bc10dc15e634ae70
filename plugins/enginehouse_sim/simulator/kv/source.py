"""Sources of keys and values outside of device memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.steps.transfer import KvTransfer


class KvSource(ABC):
    """A source as one engine sees it, over the link ``transfer``.

    ``load_async``: loads arrive between steps, not within one.
    """

    load_async: bool = True
    transfer: KvTransfer

    @abstractmethod
    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """The tokens available after the first ``num_computed_tokens``. Has no side effect."""

    def seconds(self, num_tokens: int) -> float:
        """The seconds that loading ``num_tokens`` takes."""
        return self.transfer.seconds(num_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        """The request has blocks: load ``num_tokens`` from here; 0 means that it does not need this source."""

    def delivered(self, request_id: str) -> None:
        """The claimed tokens are in device memory."""

    def release(self, request: RequestState) -> None:
        """The request finished, and no load for it is under way."""
