"""Whether a backend works, worked out from what probes and live requests saw."""

from __future__ import annotations

from enginehouse.config.schema import Checks
from enginehouse.domain.replica import Health


class HealthTracker:
    """One backend's health. Probes and live requests report to the same two methods.

    The first report decides at once; from then on ``checks.failures`` failures in a row make the backend unhealthy and
    ``checks.successes`` successes in a row make it healthy again. ``last_error`` and ``last_error_at`` tell of the last
    failure, also after the backend has recovered.
    """

    __slots__ = ("_checks", "_streak", "health", "last_error", "last_error_at", "steady")

    def __init__(self, checks: Checks, health: Health = Health.UNKNOWN) -> None:
        self._checks = checks
        self._streak = 0
        self.health = health
        self.steady = health is Health.HEALTHY
        """Whether another success would change nothing at all."""
        self.last_error: str | None = None
        self.last_error_at: float | None = None

    def judge_by(self, checks: Checks) -> None:
        """Count by ``checks`` from now on; what was counted so far stays."""
        self._checks = checks

    def succeeded(self) -> bool:
        """The backend answered. Returns whether that changed its health."""
        if self.health is Health.HEALTHY:
            self._streak = 0
            self.steady = True
            return False
        return self._against(Health.HEALTHY, self._checks.successes)

    def failed(self, why: str, now: float) -> bool:
        """The backend failed, at ``now`` seconds of the caller's clock. Returns whether that changed its health."""
        self.note(why, now)
        self.steady = False
        if self.health is Health.UNHEALTHY:
            self._streak = 0
            return False
        return self._against(Health.UNHEALTHY, self._checks.failures)

    def gone(self, why: str, now: float) -> bool:
        """The backend is known not to work: one report is enough. Returns whether that changed its health."""
        changed = self.health is not Health.UNHEALTHY
        self.health = Health.UNKNOWN
        self.failed(why, now)
        return changed

    def note(self, why: str, now: float) -> None:
        """Remember a failure that counts for nothing more."""
        self.last_error = why
        self.last_error_at = now

    def forgiven(self) -> bool:
        """The engine does not run, and the next one starts without a stain. Returns whether that changed its health."""
        changed = self.health is not Health.HEALTHY
        self.health = Health.HEALTHY
        self.steady = True
        self._streak = 0
        return changed

    def _against(self, other: Health, needed: int) -> bool:
        """One more report that speaks for the ``other`` health; ``needed`` of them in a row bring it about."""
        self._streak += 1
        if self.health is not Health.UNKNOWN and self._streak < needed:
            return False
        self.health = other
        self._streak = 0
        self.steady = other is Health.HEALTHY
        return True
