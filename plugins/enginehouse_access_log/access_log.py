"""Writes the lines of requests several at once, and those of the gateway's own log between them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import time
from typing import Final

from enginehouse.records import RequestFacts
from enginehouse_access_log.access_line import dropped_line, json_line, text_line

_WRITE_EVERY_S: Final = 0.5
_BATCH: Final = 2048
_MOST_WAITING: Final = 20_000
Write = Callable[[bytes], None]


class AccessLog:
    """Collects lines, which another thread writes, so that a slow reader of them delays no request.

    The event loop makes the lines: a thread that did would take the interpreter from it for milliseconds at once.
    ``json``: each line is a JSON object. If 20,000 lines wait, further ones are only counted.
    """

    def __init__(self, *, json: bool, write: Write | None = None) -> None:
        self.json = json
        self._one_thread = ThreadPoolExecutor(1, "access log")  # of its own: others may be busy for long
        self._write = write or _to_standard_error
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._dropped = 0

    def add(self, facts: RequestFacts) -> None:
        """Write the line of a request that has ended, with those that follow soon."""
        waiting = self._waiting
        if len(waiting) >= _MOST_WAITING:
            self._dropped += 1
            return
        waiting.append(json_line(facts) if self.json else text_line(facts))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_EVERY_S, self._start_writing)
        elif len(waiting) == _BATCH:
            self._start_writing()

    def add_behind(self, line: str) -> bool:
        """Write a line of another log soon, behind the lines that wait for it; ``False`` if there are none."""
        if not self._waiting and self._writing is None:
            return False
        if len(self._waiting) >= _MOST_WAITING:
            self._dropped += 1
        else:
            self._waiting.append(line)
        self._start_writing()
        return True

    async def close(self) -> None:
        """Write all waiting lines."""
        while self._waiting or self._writing is not None:
            if self._writing is None:
                self._start_writing()
            if self._writing is not None:
                await asyncio.wait([self._writing])
                await asyncio.sleep(0)  # until its callback has run

    def _start_writing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None or not self._waiting:
            return
        if self._dropped:
            self._waiting.append(dropped_line(time(), self._dropped, self.json))
        batch, self._waiting, self._dropped = "".join(self._waiting), [], 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._one_thread, self._write, batch.encode(errors="replace"))
        self._writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        writing.exception()  # a broken pipe cannot be reported on the same pipe
        if len(self._waiting) >= _BATCH:
            self._start_writing()
        elif self._waiting:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_EVERY_S, self._start_writing)


def _to_standard_error(data: bytes) -> None:
    fd = sys.stderr.fileno()
    while data:
        data = data[os.write(fd, data) :]
