"""The service: batches run beside the requests of people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from enginehouse import Service
from enginehouse.services import Measured, MetricInfo, ServiceGateway
from enginehouse_batches.objects import BatchSettings
from enginehouse_batches.runner import Runner
from enginehouse_batches.store import Storage, Store

_TICK_S, _LOOK_S = 0.1, 0.5

LINES = MetricInfo("gauge", "enginehouse_batch_lines", "Lines of batches without an answer.", ("state",))
LINES_DONE = MetricInfo("counter", "enginehouse_batch_lines_done", "Lines of batches that have ended.", ("outcome",))


class Batches(Service):
    """Offers ``/v1/files`` and ``/v1/batches``, and runs the lines of batches where nobody waits."""

    Config: TypeAlias = BatchSettings
    metrics = (LINES, LINES_DONE)

    def __init__(self, config: BatchSettings) -> None:
        self._settings = config
        self._storage: Storage | None = None
        self._runner: Runner | None = None

    async def start(self, gateway: ServiceGateway) -> None:
        # take longer to import than a short command runs
        from enginehouse_batches.pages import BatchPages, FilePages, OperatedBatches

        folder = Path(self._settings.folder) if self._settings.folder else gateway.folder
        storage = self._storage = Storage(Store(folder, self._settings))
        await storage.call(storage.store.open)
        runner = self._runner = Runner(gateway, storage, self._settings)
        gateway.pages.add([*FilePages(gateway, storage).routes, *BatchPages(gateway, storage).routes], for_callers=True)
        gateway.pages.add(OperatedBatches(gateway, storage, runner).routes)
        gateway.every(_LOOK_S, runner.look)
        gateway.every(_TICK_S, runner.tick)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.stop()
        if self._storage is not None:
            await self._storage.close()

    def status(self) -> Mapping[str, Any]:
        return {"batches": {"lines": self._runner.counts}} if self._runner is not None else {}

    def measure(self) -> Measured:
        runner = self._runner
        lines = {} if runner is None else runner.counts
        done = {} if runner is None else {"served": runner.served, "failed": runner.failed}
        return {
            LINES: [((state,), number) for state, number in lines.items()],
            LINES_DONE: [((outcome,), number) for outcome, number in done.items()],
        }
