"""Events of the gateway as server-sent events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

from enginehouse import (
    AuditEntry,
    Health,
    Migrated,
    Migration,
    Observer,
    PageFacts,
    Phase,
    ReplicaState,
    RequestRecord,
    Requirements,
    Route,
    SwapDone,
    wait_within,
)

_PACE_S = 0.1
_QUIET_S = 15.0
_MOST_BYTES = 256 * 1024


class EventStream(Observer):
    """Turns events into server-sent events. It observes the gateway of ``facts`` only while it has watchers.

    One change of a queue moves many requests, so phases and positions are compared at most every ``pace`` seconds and
    sent together. After ``quiet`` seconds without an event, a comment keeps the connection open. ``most_bytes`` limits
    the events that may wait for one watcher.
    """

    def __init__(
        self,
        facts: PageFacts,
        *,
        pace: float = _PACE_S,
        quiet: float = _QUIET_S,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._facts = facts
        self._pace = pace
        self._quiet = quiet
        self._most_bytes = most_bytes
        self._watchers: set[_Watcher] = set()
        self._sent_progress: dict[str, tuple[Phase, int | None]] = {}
        self._replicas_changed = False
        self._timer: asyncio.TimerHandle | None = None

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """Yield a snapshot, then every event, without end. Events that wait together are one piece.

        A watcher that is too slow gets a new snapshot, which says how many events it replaces.
        """
        watcher = _Watcher(self._most_bytes)
        self._add(watcher)
        try:
            while True:
                if watcher.snapshot_due:
                    self._send_changes()  # later events tell the changes since this snapshot
                    snapshot = self._snapshot(watcher.snapshot_due, watcher.missed)
                    watcher.snapshot_due, watcher.missed = "", 0
                    yield snapshot
                elif watcher.frames:
                    yield watcher.take()
                elif not await watcher.more(self._quiet):
                    yield b": nothing new\n\n"
        finally:
            self._remove(watcher)

    # --- events

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        self._send(
            "request_routed",
            id=request_id,
            path=requirements.path,
            model=route.requested,
            resolved=route.model,
            reason=route.reason,
            replica=route.chosen.replica,
        )
        self._schedule()

    def moved(self, request_id: str, source: str, destination: str, gap_ms: float) -> None:
        self._send("request_moved", id=request_id, source=source, destination=destination, gap_ms=round(gap_ms, 1))

    def finished(self, record: RequestRecord) -> None:
        self._sent_progress.pop(record.id, None)
        replica = record.attempts[-1].replica if record.attempts else None
        duration = round((record.ended - record.arrived) * 1000, 1)
        self._send("request_finished", id=record.id, replica=replica, status=record.status, duration_ms=duration)

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        self._send("swap_started", target=target, evict=evict)

    def swap_done(self, done: SwapDone) -> None:
        self._send("swap_done", target=done.target, error=None if done.error is None else str(done.error))

    def replica_state(self, replica: str, state: ReplicaState) -> None:
        self._send("replica_state", replica=replica, state=state)

    def backend_health(self, backend: str, health: Health) -> None:
        unhealthy = self._facts.snapshot()["backends"] if health is Health.UNHEALTHY else ()
        error = next((each["error"] for each in unhealthy if each["backend"] == backend), None)
        self._send("backend_health", backend=backend, health=health, error=error)

    def backend_draining(self, backend: str, draining: bool) -> None:
        self._send("backend_draining", backend=backend, draining=draining)

    def migrated(self, migration: Migration, migrated: Migrated) -> None:
        self._send(
            "migration_done",
            policy=migration.policy,
            source=migration.source,
            destination=migration.destination,
            moved=migrated.moved,
            refused=migrated.refused,
        )

    def operated(self, entry: AuditEntry) -> None:
        facts = {key: value for key, value in msgspec.structs.asdict(entry).items() if key != "time"}
        self._send("operated", **facts)

    def queue_changed(self) -> None:
        self._schedule()

    def replicas_changed(self) -> None:
        self._replicas_changed = True
        self._schedule()

    # --- frames

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pace, self._send_changes)

    def _send_changes(self) -> None:
        """Send the changes of requests and replicas since the last call."""
        self._cancel_timer()
        before, self._sent_progress = self._sent_progress, self._facts.progress()
        if self._replicas_changed:
            self._replicas_changed = False
            self._put(self._snapshot("replicas"))
            return
        changed = [
            {"id": id, "phase": phase, "position": position}
            for id, (phase, position) in self._sent_progress.items()
            if before.get(id) != (phase, position)
        ]
        if changed:
            self._send("request_phases", requests=changed)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _snapshot(self, why: str, missed: int = 0) -> bytes:
        return self._frame("snapshot", why=why, missed=missed, **self._facts.snapshot())

    def _send(self, event: str, **facts: object) -> None:
        self._put(self._frame(event, **facts))

    def _frame(self, event: str, **facts: object) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (
            event.encode(),
            msgspec.json.encode({"time": round(self._facts.epoch(), 3), **facts}),
        )

    def _put(self, frame: bytes) -> None:
        for watcher in self._watchers:
            watcher.put(frame)

    # --- watchers

    def _add(self, watcher: _Watcher) -> None:
        if not self._watchers:
            self._facts.observe(self)
        self._watchers.add(watcher)

    def _remove(self, watcher: _Watcher) -> None:
        self._watchers.discard(watcher)
        if not self._watchers:
            self._facts.ignore(self)
            self._cancel_timer()
            self._sent_progress = {}


class _Watcher:
    """The frames that wait for one reader. ``snapshot_due``: why it needs a snapshot first; empty if it does not."""

    def __init__(self, most_bytes: int) -> None:
        self.frames: deque[bytes] = deque()
        self.snapshot_due = "connected"
        self.missed = 0
        self._most_bytes = most_bytes
        self._bytes = 0
        self._more = asyncio.Event()

    def put(self, frame: bytes) -> None:
        """Queue ``frame``. If too much is queued, ask for a snapshot in place of all frames."""
        if self.frames and self._bytes + len(frame) > self._most_bytes:
            self.missed += len(self.frames)
            self.take()
            self.snapshot_due = "overflow"
        if self.snapshot_due:
            self.missed += self.snapshot_due == "overflow"
            return
        self.frames.append(frame)
        self._bytes += len(frame)
        self._more.set()

    def take(self) -> bytes:
        """Remove and return all frames."""
        taken = b"".join(self.frames)
        self.frames.clear()
        self._bytes = 0
        return taken

    async def more(self, timeout: float) -> bool:
        """Wait for a frame; ``False`` after ``timeout`` seconds without one."""
        self._more.clear()
        await wait_within(timeout, self._more)
        return bool(self.frames)
