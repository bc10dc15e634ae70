"""How busy the event loop is."""

from __future__ import annotations

from time import monotonic, thread_time
from typing import Any

_LEAST_S = 0.2
"""A shorter time says little of how busy the loop is."""


class LoopLoad:
    """Measures the share of the processor that the thread of the event loop takes."""

    def __init__(self) -> None:
        self._wall, self._worked = monotonic(), thread_time()
        self._share = 0.0

    def share(self) -> float:
        """The share since the last call, from 0 to 1."""
        wall, worked = monotonic(), thread_time()
        if wall - self._wall >= _LEAST_S:
            self._share = min(1.0, (worked - self._worked) / (wall - self._wall))
            self._wall, self._worked = wall, worked
        return round(self._share, 3)


def worker_row(pid: int, requests: int, config_version: int, loop_busy: float) -> dict[str, Any]:
    """One process that relays requests, as ``/api/status`` shows it."""
    return {"pid": pid, "requests": requests, "config_version": config_version, "loop_busy": loop_busy}
