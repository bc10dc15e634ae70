"""The outcomes of requests, for a process that judges backends elsewhere."""

from __future__ import annotations

from typing import Protocol

from enginehouse.domain.backend_load import Load


class OutcomeReports(Protocol):
    """Takes what a worker's requests tell of backends. The methods mean the same as those of ``Fleet``."""

    def succeeded(self, name: str, steady: bool) -> None:
        """``steady``: more successes change nothing, so the news may wait."""

    def failed(self, name: str, why: str) -> None: ...

    def doubted(self, name: str, why: str) -> None: ...

    def answered(self, load: Load, latency_ms: float) -> None: ...

    def served(self, name: str, model: str) -> None: ...

    def refused(self, name: str, model: str, status: int) -> None: ...

    def leave_alone(self, name: str, seconds: float) -> None: ...
