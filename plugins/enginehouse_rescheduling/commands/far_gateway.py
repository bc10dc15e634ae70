"""Rescheduling from another process: plans on a gateway's view, and asks the gateway to move requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol

import msgspec

from enginehouse import GatewayError
from enginehouse.rescheduling import ClusterView, Migrated, Migration
from enginehouse_kit.selection import migration_budget, select_requests
from enginehouse_rescheduling.rounds.planner import Planner
from enginehouse_rescheduling.rounds.recent_moves import RecentMoves


class AskGateway(Protocol):
    """A running gateway. Methods raise ``GatewayError``."""

    def get(self, path: str) -> bytes:
        """Return the answer to ``GET``."""

    def post(self, *path: str, query: str = "", body: object = None, timeout: float = ...) -> bytes:
        """Return the answer to ``POST``."""


class RemoteRescheduler:
    """The rounds for one gateway. Streams move as with the migrator ``replay``, at most ``timeout`` seconds each.

    ``recent``: the last moves. ``on_end`` is called after each migration with its result.
    """

    def __init__(
        self,
        gateway: AskGateway,
        planner: Planner,
        recent: RecentMoves,
        *,
        timeout: float,
        on_end: Callable[[Migration, Migrated], None],
    ) -> None:
        self._gateway = gateway
        self._planner = planner
        self._recent = recent
        self._timeout = timeout
        self._on_end = on_end

    def round(self, executor: Executor) -> None:
        """Get a view, plan, and move all requests at once. Raises ``GatewayError`` if the gateway shows no view."""
        view = msgspec.json.decode(self._gateway.get("/api/cluster"), type=ClusterView)
        plan = self._planner.plan(view, self._recent)
        chosen = [(migration, _chosen(migration, view)) for migration in plan.migrations]
        moves = [
            (migration, {name: executor.submit(self._move, name, migration.destination) for name in names})
            for migration, names in chosen
        ]
        for migration, futures in moves:
            problems = {name: future.result() for name, future in futures.items()}
            migrated = Migrated(
                moved=tuple(name for name, why in problems.items() if not why),
                refused={name: why for name, why in problems.items() if why},
            )
            self._recent.note(migration, migrated, view.now_ms)
            self._on_end(migration, migrated)

    def _move(self, request: str, destination: str) -> str:
        """Why the request stays; empty if it has moved."""
        try:
            self._gateway.post("api", "requests", request, "move", body={"to": destination}, timeout=self._timeout)
        except GatewayError as error:
            return str(error)
        return ""


def _chosen(migration: Migration, view: ClusterView) -> Sequence[str]:
    source = next(each for each in view.instances if each.id == migration.source)
    budget = migration_budget(migration.rule, migration.value, source.status.num_total_gpu_tokens)
    return migration.requests or select_requests(source.requests, migration.rule, migration.order, budget)
