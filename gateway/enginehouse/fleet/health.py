"""The health of a backend, from the results of probes and live requests."""

from __future__ import annotations

from typing import Final

from enginehouse.config.schema import CheckSettings
from enginehouse.domain.replica import Health

_LONGEST_PAUSE: Final = 60
"""The longest time for which probes cannot make a backend healthy again, in intervals of probes."""


class HealthTracker:
    """One backend's health. Probes and live requests report to the same two methods.

    The first report decides at once. Later, ``checks.failures`` failures in a row make the backend unhealthy, and
    ``checks.successes`` successes in a row make it healthy again. ``last_error`` and ``last_error_at`` describe the
    last failure, even after the backend has recovered.

    An engine may pass its health check and still fail requests. So only an answered request starts the count of failed
    ones again, and a backend that failed requests is on trial when probes have made it healthy: the next request that
    fails makes it unhealthy at once, and then probes count only after a pause, which doubles each time.
    ``checks.successes`` answered requests in a row end the trial.

    ``problem``: why it is unhealthy; empty if it is not. ``late``: nothing speaks against it but probes without an
    answer in time, which an engine that computes a long prompt may not give. ``hung``: it is unhealthy because its
    engine serves nobody.
    """

    __slots__ = (
        "_answered",
        "_checks",
        "_doubts",
        "_failed_requests",
        "_streak",
        "_trips",
        "_trusts_probes_at",
        "health",
        "hung",
        "last_error",
        "last_error_at",
        "late",
        "problem",
        "steady",
    )

    def __init__(self, checks: CheckSettings, health: Health = Health.UNKNOWN) -> None:
        self._checks = checks
        self._streak = 0
        self._trips = 0
        self._doubts = 0
        self._failed_requests = False
        self._answered = 0
        self._trusts_probes_at = 0.0
        self.health = health
        self.steady = health is Health.HEALTHY
        """Whether another success changes nothing, so that the caller may skip the report."""
        self.problem = ""
        self.late = self.hung = False
        self.last_error: str | None = None
        self.last_error_at: float | None = None

    @property
    def counts(self) -> tuple[int, int, int]:
        """Reports in a row against the health, doubts in a row, and how often requests have made it unhealthy."""
        return self._streak, self._doubts, self._trips

    @counts.setter
    def counts(self, counts: tuple[int, int, int]) -> None:
        self._streak, self._doubts, self._trips = counts

    def reconfigure(self, checks: CheckSettings) -> None:
        """Use other ``checks``. The counts stay."""
        self._checks = checks

    def succeeded(self) -> bool:
        """Count a request that was answered. Returns whether it changed the health."""
        if self.health is not Health.HEALTHY:
            changed = self._against(Health.HEALTHY, self._checks.successes)
            if changed:
                self._trips, self.steady = 0, True
            return changed
        self._streak = self._doubts = 0
        self._failed_requests = False
        self._answered += 1
        if self._answered >= self._checks.successes:
            self._trips = 0
        self.steady = not self._trips
        return False

    def probe_succeeded(self, now: float) -> bool:
        """Count a probe that succeeded at ``now``. Returns whether it changed the health."""
        if self.health is not Health.HEALTHY:
            return now >= self._trusts_probes_at and self._against(Health.HEALTHY, self._checks.successes)
        if not self._failed_requests:
            self._streak = 0
            self.steady = not self._trips and not self._doubts
        return False

    def is_doubtful(self, now: float) -> bool:
        """Whether it failed requests although it passed probes, and a probe at ``now`` may make it healthy again."""
        return self.health is Health.UNHEALTHY and self._trips > 0 and now >= self._trusts_probes_at

    def doubted(self, why: str, now: float) -> bool:
        """Count a request that the engine failed perhaps by the request's own fault. Returns as the others.

        As many in a row as failures make the backend unhealthy.
        """
        self.steady = self.late = False
        self._doubts += 1
        if self.health is Health.UNHEALTHY or self._doubts < (1 if self._trips else self._checks.failures):
            return False
        return self._trip(why, now, 1)

    def failed(self, why: str, now: float) -> bool:
        """Count a request that failed at ``now``, in seconds of the caller's clock. Returns as the others."""
        self._failed_requests, self.late = True, False
        return self._trip(why, now, 1 if self._trips else self._checks.failures)

    def _trip(self, why: str, now: float, needed: int) -> bool:
        changed = self._failed(why, now, needed)
        if changed:
            self._trips += 1
            pause = min(2 ** min(self._trips, 10) - 2, _LONGEST_PAUSE)  # none the first time: it may be over
            self._trusts_probes_at = now + pause * self._checks.interval
        return changed

    def probe_failed(self, why: str, now: float, *, late: bool = False) -> bool:
        """Count a probe that failed at ``now``. Returns whether it changed the health. ``late``: without any answer."""
        blameless = late and not self._failed_requests and not self._doubts
        changed = self._failed(why, now, self._checks.failures)
        self.late = blameless if changed else self.late and late
        return changed

    def _failed(self, why: str, now: float, needed: int) -> bool:
        self.note(why, now)
        self.steady = False
        self._answered = 0
        if self.health is Health.UNHEALTHY:
            self._streak = 0
            return False
        changed = self._against(Health.UNHEALTHY, needed)
        if changed:
            self.problem = why
        return changed

    def mark_unhealthy(self, why: str, now: float) -> bool:
        """Make the backend unhealthy by this one failure. Returns whether that changed the health."""
        changed = self.health is not Health.UNHEALTHY
        self.health = Health.UNKNOWN
        self.failed(why, now)
        return changed

    def note(self, why: str, now: float) -> None:
        """Remember a failure without counting it."""
        self.last_error = why
        self.last_error_at = now

    def reset(self) -> bool:
        """Make the backend healthy, because its engine was stopped. Returns whether that changed the health."""
        changed = self.health is not Health.HEALTHY
        self.health, self.problem, self.late, self.hung = Health.HEALTHY, "", False, False
        self.steady = True
        self._streak = self._trips = self._doubts = 0
        self._failed_requests = False
        self._trusts_probes_at = 0.0
        return changed

    def _against(self, other: Health, needed: int) -> bool:
        """Count a report that contradicts the health. After ``needed`` in a row the health is ``other``."""
        self._streak += 1
        if self.health is not Health.UNKNOWN and self._streak < needed:
            return False
        self.health, self.problem, self.late, self.hung = other, "", False, False
        self._streak = self._doubts = 0
        self._failed_requests = False
        self.steady = other is Health.HEALTHY and not self._trips
        return True
