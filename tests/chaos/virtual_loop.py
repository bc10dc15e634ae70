"""An event loop on a clock that jumps, without a single file descriptor."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from typing import Any

_EPOCH = 1_700_000_000.0
_BOOT = 1_000.0
_THREAD_S = 0.003
"""How long work in a thread seems to take."""


class Clock:
    """Virtual seconds. ``idle`` is true once nothing is ever going to happen again."""

    now = 0.0


clock = Clock()
_random = random.Random()


def install() -> None:
    """Have every module imported from now on read the virtual clock, and get the same "random" bytes for a seed.

    ``from time import perf_counter`` binds the function, so this runs before the first import of the gateway.
    """
    for name, origin in (("time", _EPOCH), ("monotonic", _BOOT), ("perf_counter", _BOOT)):
        setattr(time, name, _reader(origin))
    random.Random = _Random  # type: ignore[misc, assignment]
    os.urandom = random._urandom = lambda size: _random.randbytes(size)  # type: ignore[attr-defined]


def rewind(seed: int) -> None:
    """Begin anew: time 0, and the sources of randomness that the gateway uses."""
    clock.now = 0.0
    _random.seed(seed)
    random.seed(seed)


class _Random(random.Random):
    """One that is made without a seed depends on the run's."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(_random.random() if seed is None else seed)


def _reader(origin: float) -> Callable[[], float]:
    return lambda: origin + clock.now


class OrderedSet(dict[Any, None]):
    """A set that is walked through in the order of insertion, wherever its members are in memory."""

    def add(self, member: Any) -> None:
        self[member] = None

    def discard(self, member: Any) -> None:
        self.pop(member, None)

    def remove(self, member: Any) -> None:
        del self[member]


class Deadlock(Exception):
    """Everything waits, and nothing will ever happen."""


class _Turn:
    """What asyncio's ``Handle`` is, without what that does for debugging."""

    __slots__ = ("arguments", "callback", "context", "dropped")

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context | None) -> None:
        self.callback = callback
        self.arguments = arguments
        self.context = context
        self.dropped = False

    def __repr__(self) -> str:
        return f"{self.callback!r}{self.arguments!r}"

    def cancel(self) -> None:
        self.dropped = True
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.dropped


class Timer(_Turn):
    """A ``TimerHandle``."""

    __slots__ = ("at",)

    def __init__(self, at: float, callback: Callable[..., object], arguments: tuple[Any, ...], context: Any) -> None:
        super().__init__(callback, arguments, context)
        self.at = at

    def when(self) -> float:
        return self.at


class VirtualLoop(asyncio.BaseEventLoop):
    """Instead of waiting it jumps to the time of the next timer. Timers of the same time keep their order.

    ``connect`` and ``listen`` are the virtual network's; ``signals`` are the handlers that were added. What asyncio
    does for debugging, for threads and for sockets is left out: a run is mostly turns of this loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._turns: deque[_Turn] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self.connect: Callable[..., Any]
        self.listen: Callable[..., Any]
        self.signals: dict[int, Callable[[], object]] = {}

    def time(self) -> float:
        return clock.now

    def abandon(self) -> None:
        """Let everything that still runs here vanish without a word, as in a process that is killed.

        It does so when the loop is collected, so keep the loop until nothing else can notice.
        """
        self.set_exception_handler(lambda *_: None)
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def pending(self) -> list[Timer]:
        """The timers that are still set."""
        return [timer for _, _, timer in self._timers if not timer.dropped]

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> _Turn:  # type: ignore[override]
        turn = _Turn(callback, args, context)
        self._turns.append(turn)
        return turn

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Timer:  # type: ignore[override]
        at = clock.now + delay
        timer = Timer(at, callback, args, context)
        heappush(self._timers, (at, next(self._numbers), timer))
        return timer

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Timer:  # type: ignore[override]
        timer = Timer(when, callback, args, context)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        """Run until the loop is to stop."""
        while not self._stopping:  # type: ignore[attr-defined]
            self._run_turns()

    def _run_turns(self) -> None:
        turns, timers = self._turns, self._timers
        if not turns:
            while timers and timers[0][2].dropped:
                heappop(timers)
            if not timers:
                raise Deadlock
            if timers and timers[0][0] > clock.now:
                clock.now = timers[0][0]
        while timers and timers[0][0] <= clock.now:
            turns.append(heappop(timers)[2])
        take = turns.popleft
        for _ in range(len(turns)):
            turn = take()
            if turn.dropped:
                continue
            try:
                if turn.context is None:
                    turn.callback(*turn.arguments)
                else:
                    turn.context.run(turn.callback, *turn.arguments)
            except Exception as error:
                context = {"message": f"Exception in callback {turn!r}", "exception": error, "handle": turn}
                self.call_exception_handler(context)

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return await self.connect(factory, host, port)

    async def create_server(self, factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        return self.listen(factory, sock)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self.signals[sig] = lambda: callback(*args)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run ``func`` on the loop, a moment later: threads would make a run depend on the machine."""
        future = self.create_future()
        self.call_later(_THREAD_S, _run, future, func, args)
        return future

    def _write_to_self(self) -> None:
        pass


def _run(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:
        future.set_exception(error)
