"""The pauses of engines that failed: until one ends, its replica is not started again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from enginehouse.domain.errors import LoadFailed
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.back_off import BackOff

_WAITED_OUT_S = 2.0
"""The longest pause through which requests wait; during a longer one they are refused."""


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
        """Remove a replica."""
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
        back_off = self._back_offs.get(replica) or BackOff()
        stays = [other for other in self._running() if other not in evict]
        return back_off.left(asyncio.get_running_loop().time(), stays)
