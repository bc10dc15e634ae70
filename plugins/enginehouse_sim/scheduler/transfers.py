"""Requests whose keys and values are on their way: in, before they run, or out, after they ended."""

from __future__ import annotations

from enginehouse_sim.scheduler.interfaces import KvCacheManager
from enginehouse_sim.scheduler.output import ModelRunnerOutput
from enginehouse_sim.scheduler.request import RequestState


class Transfers:
    """Who still waits for a load, and whose blocks are kept until they were sent."""

    def __init__(self, kv_cache: KvCacheManager) -> None:
        self._kv_cache = kv_cache
        self._loading: set[str] = set()
        self._kept: dict[str, RequestState] = {}

    @property
    def num_loading(self) -> int:
        """Requests that hold blocks into which something is loaded."""
        return len(self._loading)

    @property
    def num_kept(self) -> int:
        """Requests that ended and whose blocks are still needed."""
        return len(self._kept)

    def begin_load(self, request: RequestState) -> None:
        """Something is loaded into the request's blocks between steps."""
        self._loading.add(request.request_id)

    def is_loading(self, request: RequestState) -> bool:
        """Whether it is not all there yet."""
        return request.request_id in self._loading

    def forget(self, request: RequestState) -> None:
        """The request ended while something was loaded for it."""
        self._loading.discard(request.request_id)

    def keep(self, request: RequestState) -> None:
        """The request ended, and the connector still needs its blocks."""
        self._kept[request.request_id] = request

    def update(self, output: ModelRunnerOutput) -> None:
        """Take in what arrived and left; blocks that nobody needs any more are freed."""
        for request_id in (*output.kv_connector_finished_recving, *output.kv_connector_finished_sending):
            kept = self._kept.pop(request_id, None)
            if kept is not None:
                self._kv_cache.free(kept)
        self._loading.difference_update(output.kv_connector_finished_recving)

    def free_kept(self) -> None:
        """Wait for nobody: free all blocks that were kept."""
        for request in self._kept.values():
            self._kv_cache.free(request)
        self._kept.clear()
