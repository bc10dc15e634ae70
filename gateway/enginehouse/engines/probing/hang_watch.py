"""Finds out whether a launched engine that answers no health check hangs, or computes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from enginehouse.aio.timeouts import run_within
from enginehouse.config.schema import CheckSettings

_STILL: Final = 0.01
"""An engine that takes a smaller share of a processor computes nothing. Threads that only wait take far less."""


class HangWatch:
    """Follows the late probes of one engine.

    It hangs if it has taken no processor time through ``checks.failures`` late probes in a row; or if all probes were
    late for ``checks.hung`` seconds while it served no request, for one that reads a long prompt may answer nothing
    else. ``processor_s``: the processor time that its processes have taken, ``None`` if unknown. ``in_flight``: its
    requests. ``on_hung`` gets the reason, for people.
    """

    def __init__(
        self,
        checks: CheckSettings,
        processor_s: Callable[[], Coroutine[Any, Any, float | None]],
        in_flight: Callable[[], int],
        on_hung: Callable[[str], Awaitable[None]],
    ) -> None:
        self._checks = checks
        self._processor_s = processor_s
        self._in_flight = in_flight
        self._on_hung = on_hung
        self._since: float | None = None
        self._last: tuple[float, float] | None = None
        self._still = 0

    def answered(self) -> None:
        """Note that a probe was answered, whatever the answer was."""
        self._since, self._last, self._still = None, None, 0

    async def late(self, now: float) -> None:
        """Note that a probe had no answer in time. ``now``: in seconds on any clock."""
        if not self._checks.hung:
            return
        last = self._last
        try:
            used = await run_within(self._checks.timeout, self._processor_s())
        except Exception:  # the launcher cannot say, and its guard has logged why
            used = None
        self._last = None if used is None else (now, used)
        if used is not None and last is not None:
            stands_still = used - last[1] < _STILL * (now - last[0])
            self._still = self._still + 1 if stands_still else 0
        self._since = now if self._since is None else self._since
        silent = now - self._since
        if self._still >= self._checks.failures:
            await self._on_hung(f"The engine hung: it answered no health check and computed nothing for {silent:.0f} s")
        elif silent >= self._checks.hung and not self._in_flight():
            await self._on_hung(
                f"The engine hung: it answered no health check for {silent:.0f} s and served no request"
            )
