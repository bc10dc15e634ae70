"""The pauses before engines that keep failing are started again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection

from enginehouse.domain.errors import LoadFailed

_FIRST_S, _LONGEST_S = 1.0, 60.0
_FORGIVEN_S = 60.0
"""An engine that was ready for this long works: its earlier failures no longer count."""
_WAITED_OUT_S = 2.0
"""The longest pause through which requests wait; during a longer one they are refused."""


class BackOff:
    """Doubles the pause after each failure in a row, from one second to a minute. Times are seconds on any clock.

    The first failure of an engine that had been ready causes no pause, because a restart usually helps. ``crowded_by``
    are the replicas that ran when the engine found too little memory; empty if it failed otherwise.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.crowded_by: Collection[str] = ()
        self._until = 0.0
        self._ready_at: float | None = None

    def ready(self, now: float) -> None:
        """Note that the engine can take requests."""
        self._ready_at = now

    def failed(self, now: float) -> None:
        """Note that the engine did not start, or exited by itself."""
        was_ready = self._ready_at is not None
        if self._ready_at is not None and now - self._ready_at >= _FORGIVEN_S:
            self.failures = 0
        self._ready_at = None
        self.failures += 1
        pause = 0.0 if was_ready and self.failures == 1 else _FIRST_S * 2.0 ** (self.failures - 1)
        self._until = now + min(pause, _LONGEST_S)

    def left(self, now: float, running: Collection[str] = ()) -> float:
        """Seconds until the next start is allowed; 0 for now.

        ``running``: what will run beside it. Once one of ``crowded_by`` has stopped, there is no pause.
        """
        if not self.failures or any(replica not in running for replica in self.crowded_by):
            return 0.0
        return max(0.0, self._until - now)

    async def wait_out(self, replica: str, problem: str, running: Callable[[], Collection[str]]) -> None:
        """Wait for the end of a short pause. Raise ``LoadFailed`` during a longer one. ``running``: as in ``left``."""
        while 0 < (left := self.left(_now(), running())) <= _WAITED_OUT_S:  # noqa: ASYNC110 - no event ends it
            await asyncio.sleep(left)
        self.refuse_too_soon(replica, problem, running())

    def refuse_too_soon(self, replica: str, problem: str, running: Collection[str]) -> None:
        """Raise ``LoadFailed`` during a pause. ``problem`` describes the last failure of ``replica``."""
        left = math.ceil(self.left(_now(), running))
        if left <= 0:
            return
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        text = f"'{replica}' failed {times} and is not tried again for {left} s: {problem}"
        raise LoadFailed(text, retry_after=left)


def _now() -> float:
    return asyncio.get_running_loop().time()
