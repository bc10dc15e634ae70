"""A request that has another engine read the prompt while the answer is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from enginehouse.domain.errors import RequestError


class PromptRequest:
    """Runs ``reading``, which raises ``RequestError`` if the engine fails to read the prompt.

    ``ended`` is called once, however it ends.
    """

    def __init__(self, reading: Coroutine[Any, Any, None], ended: Callable[[], None]) -> None:
        self._task = asyncio.ensure_future(reading)
        self._task.add_done_callback(lambda _: ended())
        self._is_cancelled = False

    def watch(self, lost: Callable[[RequestError], None]) -> None:
        """Call ``lost`` with the error of an engine that fails."""

        def judge(task: asyncio.Task[None]) -> None:
            if self._is_cancelled or task.cancelled():
                return
            if isinstance(error := task.exception(), RequestError):
                lost(error.with_traceback(None))

        self._task.add_done_callback(judge)

    def cancel(self) -> None:
        """Abort it: nothing depends on it any more."""
        self._is_cancelled = True  # it may have failed in this very step, so that ``lost`` is about to be called
        self._task.cancel()
