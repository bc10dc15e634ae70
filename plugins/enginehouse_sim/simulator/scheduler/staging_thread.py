"""A thread for the staging worker."""

from __future__ import annotations

import threading

from enginehouse_sim.simulator.scheduler.staging import Staging


class StagingThread:
    """Calls ``staging.prepare`` after each ``wake``, under the scheduler's lock.

    Compared with turns between steps, the thread changes only which matches are pinned in time.
    """

    def __init__(self, staging: Staging, lock: threading.Lock) -> None:
        self._staging = staging
        self._lock = lock
        self._wanted = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="staging", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Request a turn; returns at once."""
        self._wanted.set()

    def stop(self) -> None:
        """Stop the thread, and wait for its last turn."""
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
