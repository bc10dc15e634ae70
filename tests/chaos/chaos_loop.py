"""The event loop of a run, and those of processes that share it."""

from __future__ import annotations

import asyncio
from typing import Any

from enginehouse_kit.virtual_loop import Timer, VirtualLoop


class ChaosLoop(VirtualLoop):
    """Joins the ends of virtual connections too."""

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, *, sock: Any = None, **more: Any
    ) -> Any:
        if sock is not None:
            return sock.join(factory())
        return await super().create_connection(factory, host, port, **more)


class ProcessLoop(ChaosLoop):
    """The event loop of one process: its turns and timers are those of the ``parent``, until it is killed."""

    def __init__(self, parent: VirtualLoop) -> None:
        super().__init__(parent.virtual_time)
        self.parent = parent
        self.is_dead = False
        self._left: list[Any] = []

    def kill(self) -> None:
        """End the process at once. What it was about to do stays in memory, so that no ``finally`` runs."""
        self.is_dead = True
        self._left = [*asyncio.all_tasks(self)]
        for timer in self.parent.pending():
            if getattr(timer.callback, "__self__", None) is self:
                self._left += timer.arguments
                timer.cancel()
        self.abandon()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.parent.call_soon(self._run, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Timer:  # type: ignore[override]
        return self.parent.call_at(when, self._run, callback, *args, context=context)

    def _run(self, callback: Any, *args: Any) -> None:
        if not self.is_dead:
            within(self, callback, *args)


def within(loop: asyncio.AbstractEventLoop, callback: Any, *args: Any) -> Any:
    """Call ``callback`` in the process of ``loop``."""
    before = asyncio._get_running_loop()
    if before is loop:
        return callback(*args)
    asyncio._set_running_loop(loop)
    try:
        return callback(*args)
    finally:
        asyncio._set_running_loop(before)
