"""The health of a backend, from the results of probes and live requests. Compiled.

What an answer says of its engine is decided here alone, for heads, whole answers and streams alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final

from enginehouse.config.schema import CheckSettings
from enginehouse.domain.replica import Health

_LONGEST_PAUSE: Final = 60
"""The longest time for which probes cannot make a backend healthy again, in intervals of probes."""
REFUSALS: Final = frozenset({401, 403, 404})
"""An engine that answers with one of these is alive, but perhaps unable to serve what others can."""
_NOT_IMPLEMENTED: Final = 501
"""The engine cannot do what is asked, such as embeddings with the model of a chat."""
_STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400,
    "exceed_context_size_error": 400,
    "BadRequestError": 400,
    "not_supported_error": _NOT_IMPLEMENTED,
    "validation": 422,
    "overloaded": 429,
}
"""The statuses of errors that name none, by the ``type`` that engines give them."""
_CELL_S: Final = 10.0
_CELLS: Final = 12
_FEWEST_ANSWERS: Final = 10
"""Fewer answers say nothing of a share."""


class HealthTracker:
    """One backend's health. Probes and live requests report to the same two methods.

    The first report decides at once. Later, ``checks.failures`` failures in a row make the backend unhealthy, and
    ``checks.successes`` successes in a row make it healthy again. ``last_error`` and ``last_error_at`` describe the
    last failure, even after the backend has recovered.

    An engine may pass its health check and still fail requests. So only an answered request starts the count of failed
    ones again, and a backend that failed requests is on trial when probes have made it healthy: the next request that
    fails makes it unhealthy at once, and then probes count only after a pause, which doubles each time.
    ``checks.successes`` answered requests in a row end the trial.

    ``streak``: reports in a row against the health. ``doubts``: doubted requests in a row. ``trips``: how often it
    became unhealthy by requests.

    ``problem``: why it is unhealthy; empty if it is not. ``late``: nothing speaks against it but probes without an
    answer in time, which an engine that computes a long prompt may not give. ``hung``: it is unhealthy because its
    engine answers no request.
    """

    def __init__(self, checks: CheckSettings, health: Health = Health.UNKNOWN) -> None:
        self._checks = checks
        self.streak = self.doubts = self.trips = 0
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

    def reconfigure(self, checks: CheckSettings) -> None:
        """Use other ``checks``. The counts stay."""
        self._checks = checks

    def succeeded(self) -> bool:
        """Count a request that was answered. Returns whether it changed the health."""
        if self.health is not Health.HEALTHY:
            changed = self._against(Health.HEALTHY, self._checks.successes)
            if changed:
                self.trips, self.steady = 0, True
            return changed
        self.streak = self.doubts = 0
        self._failed_requests = False
        self._answered += 1
        if self._answered >= self._checks.successes:
            self.trips = 0
        self.steady = not self.trips
        return False

    def probe_succeeded(self, now: float) -> bool:
        """Count a probe that succeeded at ``now``. Returns whether it changed the health."""
        if self.health is not Health.HEALTHY:
            return now >= self._trusts_probes_at and self._against(Health.HEALTHY, self._checks.successes)
        if not self._failed_requests:
            self.streak = 0
            self.steady = not self.trips and not self.doubts
        return False

    def is_doubtful(self, now: float) -> bool:
        """Whether it failed requests although it passed probes, and a probe at ``now`` may make it healthy again."""
        return self.health is Health.UNHEALTHY and self.trips > 0 and now >= self._trusts_probes_at

    def doubted(self, why: str, now: float) -> bool:
        """Count a request that the engine failed perhaps by the request's own fault. Returns as the others.

        As many in a row as failures make the backend unhealthy.
        """
        self.steady = self.late = False
        self.doubts += 1
        if self.health is Health.UNHEALTHY or self.doubts < (1 if self.trips else self._checks.failures):
            return False
        return self._trip(why, now, 1)

    def failed(self, why: str, now: float) -> bool:
        """Count a request that failed at ``now``, in seconds of the caller's clock. Returns as the others."""
        self._failed_requests, self.late = True, False
        return self._trip(why, now, 1 if self.trips else self._checks.failures)

    def _trip(self, why: str, now: float, needed: int) -> bool:
        changed = self._failed(why, now, needed)
        if changed:
            self.trips += 1
            pause = min(2 ** min(self.trips, 10) - 2, _LONGEST_PAUSE)  # none the first time: it may be over
            self._trusts_probes_at = now + pause * self._checks.interval
        return changed

    def probe_failed(self, why: str, now: float, *, late: bool = False) -> bool:
        """Count a probe that failed at ``now``. Returns whether it changed the health. ``late``: without any answer."""
        blameless = late and not self._failed_requests and not self.doubts
        changed = self._failed(why, now, self._checks.failures)
        self.late = blameless if changed else self.late and late
        return changed

    def _failed(self, why: str, now: float, needed: int) -> bool:
        self.note(why, now)
        self.steady = False
        self._answered = 0
        if self.health is Health.UNHEALTHY:
            self.streak = 0
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
        self.streak = self.trips = self.doubts = 0
        self._failed_requests = False
        self._trusts_probes_at = 0.0
        return changed

    def _against(self, other: Health, needed: int) -> bool:
        """Count a report that contradicts the health. After ``needed`` in a row the health is ``other``."""
        self.streak += 1
        if self.health is not Health.UNKNOWN and self.streak < needed:
            return False
        self.health, self.problem, self.late, self.hung = other, "", False, False
        self.streak = self.doubts = 0
        self._failed_requests = False
        self.steady = other is Health.HEALTHY and not self.trips
        return True


class EngineVerdict(Enum):
    """What an answer's status says of the engine."""

    GOOD = "it serves the request, or the request is at fault"
    BUSY = "nothing"
    REFUSED = "it may be unable to serve what others can"
    UNSURE = "the request or the engine is at fault"
    FAILED = "the engine is at fault"


def verdict(status: int) -> EngineVerdict:
    """The verdict on an engine that answered with this ``status``."""
    if status < 400 or status == _NOT_IMPLEMENTED:
        return EngineVerdict.GOOD
    if status == 429:
        return EngineVerdict.BUSY
    if status < 500:
        return EngineVerdict.REFUSED if status in REFUSALS else EngineVerdict.GOOD
    return EngineVerdict.UNSURE if status == 500 else EngineVerdict.FAILED


def error_in(answer: Mapping[str, object]) -> object:
    """The error in an answer, or in an event of one, if it has one. TGI tells the type beside a text."""
    error, kind = answer.get("error"), answer.get("error_type")
    return {"message": error, "type": kind} if isinstance(error, str) and isinstance(kind, str) else error


def blamed_request(error: object) -> int:
    """The status with which an engine's ``error``, of a stream or of a whole answer, blames the request.

    0 if it blames the engine, or nobody.
    """
    if not isinstance(error, dict):
        return 0
    code = error.get("code")
    if code is None:
        code = error.get("http_status_code")  # TGI's
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if not isinstance(code, int):
        kind = error.get("type")
        code = _STATUS_OF_TYPE.get(kind, 0) if isinstance(kind, str) else 0
    return code if 400 <= code < 500 or code == _NOT_IMPLEMENTED else 0


class ErrorWindow:
    """Counts good and bad answers in cells of ten seconds.

    The window moves with bad answers and with probes, so that good answers need no clock. Times are in seconds.
    """

    def __init__(self) -> None:
        self.good = self._bad = 0
        self._ends = 0.0
        self._cells: deque[tuple[int, int]] = deque(maxlen=_CELLS)

    def failed(self, now: float) -> float:
        """Count a bad answer at ``now``. Returns the share."""
        self.share(now)
        self._bad += 1
        return self.share(now)

    def share(self, now: float) -> float:
        """The share of bad answers at ``now``, from 0 to 1; 0 while there are fewer than ten answers."""
        if now >= self._ends:
            passed = int(min((now - self._ends) // _CELL_S, _CELLS)) if self._ends else 0
            self._cells.append((self.good, self._bad))
            self._cells.extend([(0, 0)] * passed)
            self.good = self._bad = 0
            self._ends = now + _CELL_S
        bad = self._bad + sum(cell[1] for cell in self._cells)
        answers = bad + self.good + sum(cell[0] for cell in self._cells)
        return bad / answers if answers >= _FEWEST_ANSWERS else 0.0
