"""The events of engines and operators, by the names and with the fields that pages show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from enginehouse import Health, Observer, ReplicaState
from enginehouse.callers import AuditEntry
from enginehouse.pages import PageFacts
from enginehouse.rescheduling import Migrated, Migration
from enginehouse.tickets import Phase, SwapDone


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
