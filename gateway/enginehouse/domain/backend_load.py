"""The live load of a backend."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_WEIGHT = 0.01
"""The weight of a new latency after many answers. It is small, because prompts differ far more than backends do."""


@dataclass
class Load:
    """The live load figures of one backend, shared by all its candidates.

    The gateway updates them when requests start and end. Plugins only read them.
    """

    pending: int = 0
    """Requests that were sent to the backend and have not ended."""
    avg_latency_ms: float = 0.0
    """The average time to the first byte: of all answers up to 100, then exponential (weight 0.01); at first 0."""
    latency_weight: float = 1.0
    """The weight of the next answer in this average."""

    def begin(self) -> None:
        """Count a request that was sent."""
        self.pending += 1

    def end(self) -> None:
        """Count a request that ended, successfully or not."""
        self.pending -= 1

    def answered(self, latency_ms: float) -> None:
        """Add the latency of an answer to the average."""
        weight = self.latency_weight
        self.avg_latency_ms += weight * (latency_ms - self.avg_latency_ms)
        if weight > _LEAST_WEIGHT:
            self.latency_weight = weight / (1 + weight)
