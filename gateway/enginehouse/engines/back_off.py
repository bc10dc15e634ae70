"""The pauses before engines that keep failing are started again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Sequence

from enginehouse.domain.errors import LoadFailed
from enginehouse.domain.replica import ReplicaState

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
        if any(replica not in running for replica in self.crowded_by):
            return 0.0
        return max(0.0, self._until - now)


class Pauses:
    """Keeps the back-off of each replica of one host.

    ``running`` lists the replicas whose engines run. ``problem`` describes the last failure of a replica's engine.
    """

    def __init__(self, running: Callable[[], Sequence[str]], problem: Callable[[str], str]) -> None:
        self._running = running
        self._problem = problem
        self._back_offs: dict[str, BackOff] = {}

    def reset(self, replica: str) -> None:
        """Drop the failures of ``replica``."""
        self._back_offs[replica] = BackOff()

    def remove(self, replica: str) -> None:
        del self._back_offs[replica]

    def note(self, replica: str, state: ReplicaState) -> None:
        """Note a new state of ``replica``."""
        now = asyncio.get_running_loop().time()
        if state is ReplicaState.READY:
            self._back_offs[replica].ready(now)
        elif state is ReplicaState.FAILED:
            self._back_offs[replica].failed(now)

    def note_start(self, replica: str) -> None:
        """Note that the engine of ``replica`` starts."""
        self._back_offs[replica].crowded_by = ()

    def note_crowded(self, replica: str) -> None:
        """Note that the engine of ``replica`` found too little memory beside those that run."""
        if (back_off := self._back_offs.get(replica)) is not None:
            back_off.crowded_by = self._running()

    async def wait_out(self, replica: str, evict: Sequence[str]) -> None:
        """Wait for the end of a short pause. Raise ``LoadFailed`` during a longer one.

        There is no pause if the engine only lacked memory, and some was freed since or will be by stopping ``evict``.
        """
        while 0 < (left := self._left(replica, evict)) <= _WAITED_OUT_S:  # noqa: ASYNC110 - no event ends it
            await asyncio.sleep(left)
        self.refuse_too_soon(replica, evict)

    def refuse_too_soon(self, replica: str, evict: Sequence[str] = ()) -> None:
        """Raise ``LoadFailed`` during a pause."""
        left = math.ceil(self._left(replica, evict))
        if left <= 0:
            return
        failures = self._back_offs[replica].failures
        times = "once" if failures == 1 else f"{failures} times in a row"
        text = f"'{replica}' failed {times} and is not tried again for {left} s: {self._problem(replica)}"
        raise LoadFailed(text, retry_after=left)

    def _left(self, replica: str, evict: Sequence[str]) -> float:
        back_off = self._back_offs.get(replica)
        if back_off is None or not back_off.failures:
            return 0.0
        stays = [other for other in self._running() if other not in evict]
        return back_off.left(asyncio.get_running_loop().time(), stays)
