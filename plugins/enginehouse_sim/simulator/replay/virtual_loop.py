"""An event loop on a virtual clock, in front of a simulated world."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from typing import Any, Protocol


class World(Protocol):
    """A source of events besides the loop's own timers. Times are in seconds."""

    def next_at(self) -> float:
        """The time of its next event; infinite if there is none."""

    def advance(self) -> None:
        """Let that event happen."""

    def wait(self, until: float) -> None:
        """Note that all events up to and at ``until`` have happened."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where other loops wait for sockets, this one moves its clock to the next event of the ``world`` or its own.

    Tasks, timers and queues work as in other loops; virtual seconds cost no real time. ``called``: whether a callback
    was added since time last passed.
    """

    def __init__(self) -> None:
        self.world: World | None = None
        self.called = False
        self._now = 0.0
        super().__init__(_Clockwork(self))

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        self.called = True
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self.called = True
        return super().call_at(when, callback, *args, context=context)

    def pass_time(self, seconds: float | None) -> None:
        """Let events of the world happen until one adds a callback, or until ``seconds`` have passed."""
        until = math.inf if seconds is None else self._now + seconds
        world = self.world
        self.called = False
        while world is not None and not self.called:
            at = world.next_at()
            if at > until or at == math.inf:
                break
            self._now = max(self._now, at)
            world.advance()
        if not self.called:
            if until == math.inf:
                raise RuntimeError("every task waits, and nothing will ever happen")
            self._now = until
            if world is not None:
                world.wait(until)


class _Clockwork(selectors.DefaultSelector):
    """Takes the place of the selector that waits for sockets."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._loop.pass_time(timeout)
        return []
