"""Requests with transfers under way: loads before they run, sends after they finished."""

from __future__ import annotations

from collections.abc import Collection

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.domain.steps import ModelRunnerOutput
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager


class KvTransfers:
    """Tracks loading requests, and finished requests whose blocks are still being sent."""

    def __init__(self, kv_cache: KvCacheManager) -> None:
        self._kv_cache = kv_cache
        self._loading: set[str] = set()
        self._kept: dict[str, RequestState] = {}
        self._failed: set[str] = set()

    @property
    def num_loading(self) -> int:
        return len(self._loading)

    @property
    def num_kept(self) -> int:
        """Finished requests whose blocks are still needed."""
        return len(self._kept)

    @property
    def kept(self) -> Collection[str]:
        """The finished requests whose blocks are still needed."""
        return self._kept.keys()

    def begin_load(self, request: RequestState) -> None:
        """Note that a load writes to the request's blocks between steps."""
        self._loading.add(request.request_id)

    def is_loading(self, request: RequestState) -> bool:
        return request.request_id in self._loading

    def fail_load(self, request: RequestState) -> None:
        """Note that the blocks of the load must not be used once it ends."""
        self._failed.add(request.request_id)

    def take_failed(self, request: RequestState) -> bool:
        """Whether the load that has ended failed."""
        failed = request.request_id in self._failed
        self._failed.discard(request.request_id)
        return failed

    def cancel_load(self, request: RequestState) -> None:
        """Drop the load of a request that has finished."""
        self._loading.discard(request.request_id)
        self._failed.discard(request.request_id)

    def keep(self, request: RequestState) -> None:
        """Keep the blocks of a finished request until the connector no longer needs them."""
        self._kept[request.request_id] = request

    def update(self, output: ModelRunnerOutput) -> None:
        """Process completed loads and sends, and free blocks that are no longer needed."""
        for request_id in (*output.kv_connector_finished_recving, *output.kv_connector_finished_sending):
            kept = self._kept.pop(request_id, None)
            if kept is not None:
                self._kv_cache.free(kept)
        self._loading.difference_update(output.kv_connector_finished_recving)

    def free_kept(self) -> None:
        """Free all kept blocks at once."""
        for request in self._kept.values():
            self._kv_cache.free(request)
        self._kept.clear()
