"""An event loop on a clock that jumps, without a single file descriptor."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, Protocol

__all__ = ["VirtualLoop"]

_THREAD_S = 0.003
"""How long work in a thread seems to take."""


class VirtualTime:
    """Virtual seconds. ``now`` changes only while every task of the loop waits."""

    now = 0.0


class World(Protocol):
    """A source of events besides the loop's own timers. Times are in seconds."""

    def next_at(self) -> float:
        """The time of its next event; infinite if there is none."""

    def advance(self) -> None:
        """Let that event happen."""

    def wait(self, until: float) -> None:
        """Note that all events up to and at ``until`` have happened."""


class Network(Protocol):
    """The connections and the listening sockets of a virtual loop."""

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        """What ``create_connection`` does."""

    def listen(self, factory: Callable[[], Any], sock: Any) -> Any:
        """What ``create_server`` does."""


class Deadlock(RuntimeError):
    """Every task waits, and nothing will ever happen."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Instead of waiting, it jumps to the next timer or to the next event of its ``world``.

    Virtual seconds cost no real time. Timers of the same time keep their order, and events of the world come before
    them. What asyncio does for debugging, for threads and for sockets is left out. ``signals``: the handlers that were
    added.
    """

    def __init__(self, time: VirtualTime | None = None) -> None:
        super().__init__()
        self.virtual_time = time or VirtualTime()
        self.world: World | None = None
        self.network: Network
        self.signals: dict[int, Callable[[], object]] = {}
        self._turns: deque[Timer] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self.virtual_time.now

    def pending(self) -> list[Timer]:
        """The timers that are still set."""
        return [timer for _, _, timer in self._timers if not timer.dropped]

    def abandon(self) -> None:
        """Let everything that still runs here vanish without a word, as in a process that is killed.

        It does so when the loop is collected, so keep the loop until nothing else can notice.
        """
        self.set_exception_handler(lambda *_: None)
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Timer:  # type: ignore[override]
        turn = Timer(callback, args, context)
        self._turns.append(turn)
        return turn

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Timer:  # type: ignore[override]
        return self.call_at(self.virtual_time.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Timer:  # type: ignore[override]
        timer = Timer(callback, args, context, when)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        """Run until the loop is to stop."""
        while not self._stopping:  # type: ignore[attr-defined]
            if not self._turns:
                self._pass_time()
            self._run_turns()

    def _pass_time(self) -> None:
        """Let events of the world happen until one adds a turn, or until the next timer is due."""
        world, time = self.world, self.virtual_time
        while not self._turns:
            until = self._next_timer_at()
            at = math.inf if world is None else world.next_at()
            if at == until == math.inf:
                raise Deadlock("every task waits, and nothing will ever happen")
            if world is None or at > until:
                time.now = max(time.now, until)
                if world is not None:
                    world.wait(until)
                return
            time.now = max(time.now, at)
            world.advance()

    def _next_timer_at(self) -> float:
        timers = self._timers
        while timers and timers[0][2].dropped:
            heappop(timers)
        return timers[0][0] if timers else math.inf

    def _run_turns(self) -> None:
        turns, timers, now = self._turns, self._timers, self.virtual_time.now
        while timers and timers[0][0] <= now:
            turns.append(heappop(timers)[2])
        take = turns.popleft
        turn: Timer | None
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
        turn = None  # the traceback of a failure may lead to this frame

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return await self.network.connect(factory, host, port)

    async def create_server(self, factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:  # type: ignore[override]
        return self.network.listen(factory, sock)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self.signals[sig] = lambda: callback(*args)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run ``func`` on the loop, a moment later: threads would make a run depend on the machine."""
        future = self.create_future()
        self.call_later(_THREAD_S, _run, future, func, args)
        return future

    def _write_to_self(self) -> None:
        pass


class Timer:
    """What asyncio's ``Handle`` and ``TimerHandle`` are, without what those do for debugging."""

    __slots__ = ("arguments", "at", "callback", "context", "dropped")

    def __init__(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context | None, at: float = 0.0
    ) -> None:
        self.callback = callback
        self.arguments = arguments
        self.context = context
        self.at = at
        self.dropped = False

    def __repr__(self) -> str:
        return f"{self.callback!r}{self.arguments!r}"

    def cancel(self) -> None:
        self.dropped = True
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.dropped

    def when(self) -> float:
        return self.at


def _run(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        future.set_result(func(*args))
    except Exception as error:
        future.set_exception(error)
