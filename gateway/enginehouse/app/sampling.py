"""Samples the gateway's figures once a second."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection

from enginehouse.domain.ticket import Ticket
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.relay import Relay
from enginehouse.telemetry.series.bucket_ring import WHOLE, SeriesKey
from enginehouse.telemetry.series.series_store import Gauges


class EverySecond:
    """Calls ``sample`` on the event loop at the beginning of each second of the time of day."""

    def __init__(self, sample: Callable[[], None], epoch: Callable[[], float]) -> None:
        self._sample = sample
        self._epoch = epoch
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        now = self._epoch()
        self._timer = asyncio.get_running_loop().call_later(round(now) + 1 - now, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self.start()
        self._sample()


def gauges(relay: Relay, engines: ManagedEngines) -> Gauges:
    """The waiting requests, the engines' KV caches in use and the GPUs' memory in use, as they are now."""
    waiting = engines.waiting()
    if waiting:
        yield "queue", WHOLE, len(waiting)
        yield from _queues(relay, waiting.keys())
    fleet = relay.context.fleet
    for backend in fleet.backends():
        if usage := fleet.load(backend.name).kv_usage:
            yield "kv_usage", SeriesKey("backend", backend.name), usage
            yield "kv_usage", WHOLE, usage
            for model in backend.models[:1]:
                yield "kv_usage", SeriesKey("model", model), usage
    for gpu in engines.gpus():
        yield "gpu_memory", SeriesKey("gpu", f"{gpu.host}:{gpu.gpu}"), gpu.used


def _queues(relay: Relay, waiting: Collection[Ticket]) -> Gauges:
    """The waiting requests of each model and each backend."""
    queues: Counter[SeriesKey] = Counter()
    for live in relay.live:
        if live.ticket in waiting and live.route is not None:
            chosen = live.route.chosen
            queues.update((SeriesKey("model", chosen.model), SeriesKey("backend", chosen.backend)))
    for key, count in queues.items():
        yield "queue", key, count
