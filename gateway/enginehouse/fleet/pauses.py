"""For how long requests go to other backends: one asked for it, or it refuses what others serve."""

from __future__ import annotations

from typing import Final

import msgspec

NEVER: Final = float("inf")
_LONGEST_DOUBLINGS: Final = 6


class Suspicion(msgspec.Struct, frozen=True, array_like=True):
    """A backend refused a model that another one serves. ``status``: its answer. ``until``: the end of the pause."""

    status: int
    until: float
    doublings: int = 0


class RoutingPauses:
    """The pauses of one backend, and of its models. Times are in seconds of the caller's clock.

    A refused model is suspect, in its pause and after it, until an answer or a probe says otherwise. Its pause doubles,
    up to 64 times ``first_s``, whenever the first answer after it is a refusal again. ``left_alone_until``: the end of
    the pause that the backend asked for last; 0 if it never did. ``suspicions``: of the suspect models.
    """

    __slots__ = ("first_s", "left_alone_until", "suspicions")

    def __init__(self, first_s: float) -> None:
        self.first_s = first_s
        self.left_alone_until = 0.0
        self.suspicions: dict[str, Suspicion] = {}

    @property
    def any(self) -> bool:
        """Whether there was a pause, or is one."""
        return bool(self.left_alone_until or self.suspicions)

    def leave_alone(self, until: float) -> None:
        """Pause the whole backend until then."""
        self.left_alone_until = max(self.left_alone_until, until)

    def left_alone_s(self, now: float) -> float:
        """The rest of the pause that the backend asked for; 0 without one."""
        return max(0.0, self.left_alone_until - now)

    def suspect(self, model: str, status: int, now: float) -> None:
        """Note that ``model`` was refused with ``status``. Refusals during a pause are older than it."""
        known = self.suspicions.get(model)
        if known is None:
            self.suspicions[model] = Suspicion(status, now + self.first_s)
        elif now >= known.until:
            doublings = min(known.doublings + 1, _LONGEST_DOUBLINGS)
            self.suspicions[model] = Suspicion(status, now + self.first_s * 2**doublings, doublings)

    def clear(self, model: str) -> bool:
        """Trust the backend with ``model`` again. Returns whether it was suspect."""
        return self.suspicions.pop(model, None) is not None

    def clear_all(self) -> None:
        """Trust the backend with every model again."""
        self.suspicions.clear()

    def why(self, model: str, now: float) -> str:
        """Why requests for ``model`` go elsewhere now, for people to read; empty if they need not."""
        if now < self.left_alone_until:
            return "its engine asked to be left alone (Retry-After)"
        known = self.suspicions.get(model)
        if known is not None and now < known.until:
            return f"it answered {known.status} to what another backend serves"
        return ""

    def next_end(self, now: float) -> float:
        """The end of the pause that ends first after ``now``; ``NEVER`` without one."""
        ends = (self.left_alone_until, *(each.until for each in self.suspicions.values()))
        return min((end for end in ends if end > now), default=NEVER)
