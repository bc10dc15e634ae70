"""Drives a staging worker from a thread of its own."""

from __future__ import annotations

import threading

from enginehouse_sim.scheduler.staging import Staging


class StagingThread:
    """Gives ``staging`` a turn after each ``wake``, under the lock that its scheduler is used under.

    What it changes against turns taken between steps is only which matches were pinned in time.
    """

    def __init__(self, staging: Staging, lock: threading.Lock) -> None:
        self._staging = staging
        self._lock = lock
        self._wanted = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="staging", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Take a turn soon; returns at once."""
        self._wanted.set()

    def stop(self) -> None:
        """No more turns; returns when the last one is over."""
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._stopping:
                return
            with self._lock:
                self._staging.prepare()
