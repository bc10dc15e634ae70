"""The replicas of one host that leave service, for a while or for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enginehouse.domain.errors import LoadFailed
from enginehouse.domain.replica import AT_REST
from enginehouse.engines.engine_pool import EnginePool
from enginehouse.engines.host_replicas import HostReplicas
from enginehouse.engines.status_publisher import StatusPublisher
from enginehouse.relay.moves.drains import Drains
from enginehouse.scheduling.host_queue import HostQueue


class Retirements:
    """Retires engines, and removes replicas whose engines have stopped.

    ``on_removed`` is called when a retired replica was removed.
    """

    def __init__(
        self,
        replicas: HostReplicas,
        pool: EnginePool,
        queue: HostQueue,
        publisher: StatusPublisher,
        drains: Drains,
        on_removed: Callable[[], None],
    ) -> None:
        self._replicas = replicas
        self._pool = pool
        self._queue = queue
        self._publisher = publisher
        self._drains = drains
        self._on_removed = on_removed

    def retire(self, replica: str, within: float) -> asyncio.Task[None] | None:
        """Retire the engine of ``replica``: drain it for at most ``within`` seconds, then stop it.

        Returns the task of its retirement; ``None`` if it does not run.
        """
        end = None
        if self._pool.states()[replica] not in AT_REST:
            self._leave(replica)
            end = self._queue.retire(replica, within)
        self._publisher.show(replica, self._pool.states()[replica])
        return end

    def retire_and_remove(self, replica: str, within: float) -> None:
        """Retire a replica, and remove it when its engine has stopped, unless the configuration restores it before."""
        self._publisher.stop_probing(self._replicas[replica])
        self._leave(replica)
        self._replicas.retiring[replica] = asyncio.ensure_future(self._remove_later(replica, within))

    def remove(self, replica: str) -> None:
        """Remove a replica whose engine is at rest."""
        self._replicas.remove(replica)
        self._pool.remove(replica)
        self._publisher.remove(replica)

    def _leave(self, replica: str) -> None:
        """Take ``replica`` out of service, and move its streams away."""
        self._pool.retire(replica)
        self._drains.retire(replica, LoadFailed(f"The engine of '{replica}' is being stopped; connect again"))

    async def _remove_later(self, replica: str, within: float) -> None:
        await self._queue.retire(replica, within)
        if self._replicas.retiring.get(replica) is asyncio.current_task():  # else the configuration has restored it
            self.remove(replica)
            self._on_removed()
