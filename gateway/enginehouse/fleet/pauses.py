"""For how long requests go to other backends: one asked for it, or it refuses what others serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NEVER: Final = float("inf")
_LONGEST_DOUBLINGS: Final = 6


class Suspicion:
    """A backend refused a model that another one serves. ``status``: its answer. ``until``: the end of the pause."""

    __slots__ = ("doublings", "status", "until")

    def __init__(self, status: int, until: float) -> None:
        self.status = status
        self.until = until
        self.doublings = 0


class RoutingPauses:
    """The pauses of one backend, and of its models. Times are in seconds of the caller's clock.

    A refused model is suspect until an answer or a probe says otherwise. Its pause doubles, up to 64 times
    ``first_s``, whenever the first answer after it is a refusal again.
    """

    __slots__ = ("_left_alone_until", "_suspicions", "first_s")

    def __init__(self, first_s: float) -> None:
        self.first_s = first_s
        self._left_alone_until = 0.0
        self._suspicions: dict[str, Suspicion] = {}

    @property
    def any(self) -> bool:
        """Whether there was a pause, or is one."""
        return bool(self._left_alone_until or self._suspicions)

    @property
    def suspects(self) -> bool:
        """Whether any model is suspect."""
        return bool(self._suspicions)

    @property
    def left_alone_until(self) -> float:
        """The end of the pause that the backend asked for last; 0 if it never did."""
        return self._left_alone_until

    def suspicions(self) -> Mapping[str, tuple[int, float, int]]:
        """The suspect models, each with the status, the end of its pause and its doublings."""
        return {model: (each.status, each.until, each.doublings) for model, each in self._suspicions.items()}

    def become(self, left_alone_until: float, suspicions: Mapping[str, tuple[int, float, int]]) -> None:
        """Have these pauses, and no others."""
        self._left_alone_until = left_alone_until
        self._suspicions = {}
        for model, (status, until, doublings) in suspicions.items():
            self._suspicions[model] = found = Suspicion(status, until)
            found.doublings = doublings

    def is_suspect(self, model: str) -> bool:
        """Whether ``model`` is suspect, be it in its pause or after it."""
        return model in self._suspicions

    def leave_alone(self, until: float) -> None:
        """Pause the whole backend until then."""
        self._left_alone_until = max(self._left_alone_until, until)

    def left_alone_s(self, now: float) -> float:
        """The rest of the pause that the backend asked for; 0 without one."""
        return max(0.0, self._left_alone_until - now)

    def suspect(self, model: str, status: int, now: float) -> None:
        """Note that ``model`` was refused with ``status``. Refusals during a pause are older than it."""
        known = self._suspicions.get(model)
        if known is None:
            self._suspicions[model] = Suspicion(status, now + self.first_s)
        elif now >= known.until:
            known.doublings = min(known.doublings + 1, _LONGEST_DOUBLINGS)
            known.status = status
            known.until = now + self.first_s * 2**known.doublings

    def clear(self, model: str) -> bool:
        """Trust the backend with ``model`` again. Returns whether it was suspect."""
        return self._suspicions.pop(model, None) is not None

    def clear_all(self) -> None:
        """Trust the backend with every model again."""
        self._suspicions.clear()

    def why(self, model: str, now: float) -> str:
        """Why requests for ``model`` go elsewhere now, for people to read; empty if they need not."""
        if now < self._left_alone_until:
            return "its engine asked to be left alone (Retry-After)"
        known = self._suspicions.get(model)
        if known is not None and now < known.until:
            return f"it answered {known.status} to what another backend serves"
        return ""

    def next_end(self, now: float) -> float:
        """The end of the pause that ends first after ``now``; ``NEVER`` without one."""
        ends = (self._left_alone_until, *(each.until for each in self._suspicions.values()))
        return min((end for end in ends if end > now), default=NEVER)
