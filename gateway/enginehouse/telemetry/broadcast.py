"""What happens in the house, told live to whoever watches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from time import time
from typing import Any, Protocol

import msgspec

from enginehouse.domain.replica import Health, ReplicaState
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase, SwapDone
from enginehouse.interfaces.observers import Observer
from enginehouse.telemetry.listeners import Observers
from enginehouse.telemetry.timed import set_or_late

Standing = tuple[Phase, int | None]
"""How far a live request is, and its position in the queue if it waits there."""

_PACE_S = 0.1
_QUIET_S = 15.0
_MOST_BYTES = 256 * 1024


class Scene(Protocol):
    """What can be seen of the house at one moment."""

    def picture(self) -> Mapping[str, Any]:
        """Everything that events tell changes of."""

    def standings(self) -> dict[str, Standing]:
        """Every live request that has a route, by its id."""


class Broadcast(Observer):
    """Turns what it observes into server-sent events. It is one of ``observers`` only while somebody watches.

    Positions in queues change in long runs, so these are looked at every ``pace`` seconds, while something happens, and
    told together. ``quiet``: after so many seconds without an event a comment is sent instead. ``most_bytes``: what may
    wait for one watcher.
    """

    def __init__(
        self,
        observers: Observers,
        scene: Scene,
        *,
        clock: Callable[[], float] = time,
        pace: float = _PACE_S,
        quiet: float = _QUIET_S,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._observers = observers
        self._scene = scene
        self._clock = clock
        self._pace = pace
        self._quiet = quiet
        self._most_bytes = most_bytes
        self._watchers: set[_Watcher] = set()
        self._told: dict[str, Standing] = {}
        self._other_replicas = False
        self._timer: asyncio.TimerHandle | None = None

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """A snapshot, then every event, for ever; what came together is one piece.

        A watcher too slow for all of it gets a new snapshot, which says how many events it stands for.
        """
        watcher = _Watcher(self._most_bytes)
        self._join(watcher)
        try:
            while True:
                if watcher.lacks:
                    self._look()  # what it is told of next is what has changed since this snapshot
                    snapshot = self._snapshot(watcher.lacks, watcher.missed)
                    watcher.lacks, watcher.missed = "", 0
                    yield snapshot
                elif watcher.frames:
                    yield watcher.take()
                elif not await watcher.more(self._quiet):
                    yield b": nothing new\n\n"
        finally:
            self._leave(watcher)

    # --- what happens

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        """A request was routed."""
        self._send(
            "request_routed",
            id=request_id,
            path=requirements.path,
            model=route.requested,
            resolved=route.model,
            reason=route.reason,
            replica=route.chosen.replica,
        )
        self._look_soon()

    def finished(self, request_id: str, replica: str, status: int, duration_ms: float) -> None:
        """A request has ended."""
        self._told.pop(request_id, None)
        duration = round(duration_ms, 1)
        self._send("request_finished", id=request_id, replica=replica or None, status=status, duration_ms=duration)

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """A swap began."""
        self._send("swap_started", target=target, evict=evict)

    def swap_done(self, done: SwapDone) -> None:
        """A swap ended."""
        self._send("swap_done", target=done.target, error=None if done.error is None else str(done.error))

    def replica_state(self, replica: str, state: ReplicaState) -> None:
        """A replica changed its state."""
        self._send("replica_state", replica=replica, state=state)

    def backend_health(self, backend: str, health: Health) -> None:
        """A backend changed its health."""
        self._send("backend_health", backend=backend, health=health)

    def queue_changed(self) -> None:
        """Requests may have other phases and positions."""
        self._look_soon()

    def replicas_changed(self) -> None:
        """What there is to watch is different now."""
        self._other_replicas = True
        self._look_soon()

    # --- what is made of it

    def _look_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pace, self._look)

    def _look(self) -> None:
        """Tell what has changed since the last look."""
        self._look_no_more()
        before, self._told = self._told, self._scene.standings()
        if self._other_replicas:
            self._other_replicas = False
            self._put(self._snapshot("replicas"))
            return
        changed = [
            {"id": id, "phase": phase, "position": position}
            for id, (phase, position) in self._told.items()
            if before.get(id) != (phase, position)
        ]
        if changed:
            self._send("request_phases", requests=changed)

    def _look_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _snapshot(self, why: str, missed: int = 0) -> bytes:
        return self._frame("snapshot", why=why, missed=missed, **self._scene.picture())

    def _send(self, event: str, **facts: object) -> None:
        self._put(self._frame(event, **facts))

    def _frame(self, event: str, **facts: object) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (
            event.encode(),
            msgspec.json.encode({"time": round(self._clock(), 3), **facts}),
        )

    def _put(self, frame: bytes) -> None:
        for watcher in self._watchers:
            watcher.put(frame)

    # --- for whom

    def _join(self, watcher: _Watcher) -> None:
        if not self._watchers:
            self._observers.add(self)
        self._watchers.add(watcher)

    def _leave(self, watcher: _Watcher) -> None:
        self._watchers.discard(watcher)
        if not self._watchers:
            self._observers.remove(self)
            self._look_no_more()
            self._told = {}


class _Watcher:
    """What waits for one reader. ``lacks``: why it needs a snapshot, empty if it does not."""

    def __init__(self, most_bytes: int) -> None:
        self.frames: deque[bytes] = deque()
        self.lacks = "connected"
        self.missed = 0
        self._most_bytes = most_bytes
        self._bytes = 0
        self._more = asyncio.Event()

    def put(self, frame: bytes) -> None:
        """Let ``frame`` wait; if that is too much, let a snapshot take the place of everything."""
        if self.frames and self._bytes + len(frame) > self._most_bytes:
            self.missed += len(self.frames)
            self.take()
            self.lacks = "overflow"
        if self.lacks:
            self.missed += self.lacks == "overflow"
            return
        self.frames.append(frame)
        self._bytes += len(frame)
        self._more.set()

    def take(self) -> bytes:
        """All that waits."""
        taken = b"".join(self.frames)
        self.frames.clear()
        self._bytes = 0
        return taken

    async def more(self, timeout: float) -> bool:
        """Wait until something does; whether that is so within ``timeout`` seconds."""
        self._more.clear()
        await set_or_late(self._more, timeout)
        return bool(self.frames)
