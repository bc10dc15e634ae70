"""How much memory engines take."""

from __future__ import annotations

import logging
from collections import Counter

from enginehouse.aio.timeouts import run_within
from enginehouse.engines.supervisor import Supervisor

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0


class MemoryMeter:
    """Measures engines. ``measured`` is live: the most bytes seen for each replica since its last ``reset``."""

    def __init__(self) -> None:
        self.measured: dict[str, int] = {}
        self._resets: Counter[str] = Counter()

    def reset(self, replica: str) -> None:
        """Drop what was measured, and the result of a measurement in progress."""
        self.measured.pop(replica, None)
        self._resets[replica] += 1

    async def measure(self, replica: str, supervisor: Supervisor) -> None:
        """Measure the engine of ``replica`` once. A failure is logged."""
        resets = self._resets[replica]
        try:
            memory = await run_within(_TIMEOUT_S, supervisor.memory())
        except Exception as error:
            _log.warning("The memory of %s could not be measured: %r", replica, error)
            return
        if memory and resets == self._resets[replica]:
            self.measured[replica] = max(memory, self.measured.get(replica, 0))
