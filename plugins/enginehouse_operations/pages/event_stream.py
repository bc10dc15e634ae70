"""Events of the gateway by the names that pages show, and as server-sent events."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

import msgspec

from enginehouse import Health, Observer, ReplicaState, RequestRecord, Requirements, Route
from enginehouse.callers import AuditEntry
from enginehouse.pages import PageFacts
from enginehouse.runtime import wait_within
from enginehouse.tickets import Phase, SwapDone
from enginehouse_kit.rescheduling import Migrated, Migration

_PACE_S = 0.1
_QUIET_S = 15.0
_MOST_BYTES = 256 * 1024
_PIECES_HELD = 4
"""Of the bytes that may wait for a watcher, one piece has this part at most, unless one event is larger."""
_AT_FULL_PACE = 20
"""With more watchers than so many, pieces are rarer, so that all of them together cost the same."""


class LiveStates(Protocol):
    """What events show of the current state, as ``LiveView`` does."""

    def snapshot(self) -> Mapping[str, Any]: ...

    def last_error(self, backend: str) -> str | None: ...

    def waiting_for(self, replica: str) -> int: ...

    def progress(self) -> dict[str, tuple[Phase, int | None]]: ...


class NamedEvents(Observer):
    """Calls ``send`` for each event but those of single requests."""

    def __init__(self, facts: PageFacts, live: LiveStates) -> None:
        self._facts = facts
        self._live = live

    @abstractmethod
    def send(self, event: str, **facts: object) -> None:
        """Show ``event``, which happens now."""

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        self.send("swap_started", target=target, evict=evict)

    def swap_done(self, done: SwapDone) -> None:
        self.send("swap_done", target=done.target, error=None if done.error is None else str(done.error))

    def replica_state(self, replica: str, state: ReplicaState) -> None:
        self.send("replica_state", replica=replica, state=state)

    def backend_health(self, backend: str, health: Health) -> None:
        error = self._live.last_error(backend) if health is Health.UNHEALTHY else None
        self.send("backend_health", backend=backend, health=health, error=error)

    def hung(self, backend: str, why: str) -> None:
        self.send("hung", backend=backend, why=why)

    def backend_draining(self, backend: str, draining: bool) -> None:
        self.send("backend_draining", backend=backend, draining=draining)

    def migrated(self, migration: Migration, migrated: Migrated) -> None:
        self.send(
            "migration_done",
            policy=migration.policy,
            source=migration.source,
            destination=migration.destination,
            moved=migrated.moved,
            refused=migrated.refused,
        )

    def operated(self, entry: AuditEntry) -> None:
        facts = {key: value for key, value in msgspec.structs.asdict(entry).items() if key != "time"}
        self.send("operated", **facts)


class EventStream(NamedEvents):
    """Turns events into server-sent events. It observes the gateway of ``facts`` only while it has watchers.

    One change of a queue moves many requests, so phases and positions are compared at most every ``pace`` seconds and
    sent together. Events are put together for all watchers once, at most every ``pace`` seconds, and less often with
    many of them: a piece costs a write for each watcher. After ``quiet`` seconds without an event, a comment keeps the
    connection open. ``most_bytes`` limits the events that may wait for one watcher.
    """

    def __init__(
        self,
        facts: PageFacts,
        live: LiveStates,
        *,
        pace: float = _PACE_S,
        quiet: float = _QUIET_S,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        super().__init__(facts, live)
        self._pace = pace
        self._quiet = quiet
        self._most_bytes = most_bytes
        self._watchers: set[_Watcher] = set()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._flushing: asyncio.Handle | None = None
        self._flush_at = 0.0
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
                    self._send_changes()
                    self._flush()  # later events tell the changes since this snapshot
                    snapshot = self._snapshot(watcher.snapshot_due, watcher.missed)
                    watcher.snapshot_due, watcher.missed = "", 0
                    yield snapshot
                elif watcher.pieces:
                    yield watcher.take()
                elif not await watcher.more(self._quiet):
                    yield b": nothing new\n\n"
        finally:
            self._remove(watcher)

    # --- events

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        self.send(
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
        self.send("request_moved", id=request_id, source=source, destination=destination, gap_ms=round(gap_ms, 1))

    def finished(self, record: RequestRecord) -> None:
        self._sent_progress.pop(record.id, None)
        replica = record.attempts[-1].replica if record.attempts else None
        duration = round((record.ended - record.arrived) * 1000, 1)
        self.send("request_finished", id=record.id, replica=replica, status=record.status, duration_ms=duration)

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
        before, self._sent_progress = self._sent_progress, self._live.progress()
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
            self.send("request_phases", requests=changed)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _snapshot(self, why: str, missed: int = 0) -> bytes:
        return self._frame("snapshot", why=why, missed=missed, **self._live.snapshot())

    def send(self, event: str, **facts: object) -> None:
        self._put(self._frame(event, **facts))

    def _frame(self, event: str, **facts: object) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (
            event.encode(),
            msgspec.json.encode({"time": round(self._facts.epoch(), 3), **facts}),
        )

    def _put(self, frame: bytes) -> None:
        self._pending.append(frame)
        self._pending_bytes += len(frame)
        loop = asyncio.get_running_loop()
        if self._flushing is None:
            self._flushing = loop.call_at(max(loop.time(), self._flush_at), self._flush)
        if self._pending_bytes * _PIECES_HELD > self._most_bytes:
            self._flush()

    def _flush(self) -> None:
        """Give all watchers the events since the last call."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if not self._pending:
            return
        piece, count = b"".join(self._pending), len(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        for watcher in self._watchers:
            watcher.put(piece, count)
        self._flush_at = asyncio.get_running_loop().time() + self._pace * max(1, len(self._watchers) / _AT_FULL_PACE)

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
            self._flush()
            self._sent_progress = {}


class _Watcher:
    """The events that wait for one reader. ``snapshot_due``: why it needs a snapshot first; empty if it does not."""

    def __init__(self, most_bytes: int) -> None:
        self.pieces: deque[tuple[bytes, int]] = deque()
        self.snapshot_due = "connected"
        self.missed = 0
        self._most_bytes = most_bytes
        self._bytes = 0
        self._more = asyncio.Event()

    def put(self, piece: bytes, count: int) -> None:
        """Queue ``count`` events. If too much is queued, ask for a snapshot in place of all of them."""
        if self.pieces and self._bytes + len(piece) > self._most_bytes:
            self.missed += sum(each[1] for each in self.pieces)
            self.take()
            self.snapshot_due = "overflow"
        if self.snapshot_due:
            self.missed += count if self.snapshot_due == "overflow" else 0
            return
        self.pieces.append((piece, count))
        self._bytes += len(piece)
        self._more.set()

    def take(self) -> bytes:
        """Remove and return all events."""
        taken = self.pieces[0][0] if len(self.pieces) == 1 else b"".join(piece for piece, _ in self.pieces)
        self.pieces.clear()
        self._bytes = 0
        return taken

    async def more(self, timeout: float) -> bool:
        """Wait for events; ``False`` after ``timeout`` seconds without any."""
        self._more.clear()
        await wait_within(timeout, self._more)
        return bool(self.pieces)
