"""Once a second: plugins take samples of the gateway's figures."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import AT_REST
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.relay import Relay
from enginehouse.telemetry.plugin_failures import log_plugin_failure

Gauge = tuple[str, str, str, float]
"""A metric, what it is of (``model``, ``backend``, ``gpu``, or empty for the gateway), its name, and the value."""


class EverySecond:
    """Calls ``first`` and functions of plugins on the event loop at the beginning of each second of the time of day."""

    def __init__(self, epoch: Callable[[], float], first: Callable[[], None]) -> None:
        self._epoch = epoch
        self._first = first
        self._calls: list[tuple[PluginId, Callable[[], None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, plugin: PluginId, call: Callable[[], None]) -> None:
        """Call ``call`` of ``plugin`` too. What it raises is logged."""
        self._calls.append((plugin, call))

    def start(self) -> None:
        now = self._epoch()
        self._timer = asyncio.get_running_loop().call_later(round(now) + 1 - now, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def sample(self) -> None:
        """Call all of them now."""
        self._first()
        for plugin, call in self._calls:
            try:
                call()
            except BaseException as error:  # noqa: PERF203 - not even SystemExit ends the gateway
                log_plugin_failure(plugin, "failed in its call of every second", error)

    def _tick(self) -> None:
        self.start()
        self.sample()


def gauges(relay: Relay, engines: ManagedEngines) -> Iterator[Gauge]:
    """The waiting requests, and what engines, hosts and GPUs use, as they are now."""
    waiting = {*engines.waiting(), *relay.context.waiting_room.waiting()}
    in_rooms = [live for live in relay.live if live.position is not None]  # of workers
    if waiting or in_rooms:
        yield "queue", "", "", len(waiting) + len(in_rooms)
        waits = [*in_rooms, *(live for live in relay.live if live.ticket in waiting)]
        chosen = [live.route.chosen for live in waits if live.route is not None]
        unbound = [live.model for live in waits if live.route is None and live.model is not None]
        models, backends = [*unbound, *(each.model for each in chosen)], [each.backend for each in chosen]
        for by, names in (("model", models), ("backend", backends)):
            for name, count in Counter(names).items():
                yield "queue", by, name, count
    fleet = relay.context.fleet
    used = {name: load.kv_usage for name in relay.context.upstreams if (load := fleet.load(name)).cache_tokens}
    for backend in fleet.backends() if used else ():
        if backend.name in used:
            usage = used[backend.name]
            yield "kv_usage", "backend", backend.name, usage
            yield "kv_usage", "", "", usage
            for model in backend.models[:1]:
                yield "kv_usage", "model", model, usage
    sizes: dict[str, int] = {}
    for host in engines.memory():
        sizes.update(host.replicas)
        if host.budget:
            yield "host_memory", "host", host.host, host.used
    for candidates in fleet.snapshot.models.values() if sizes else ():
        for each in candidates:
            if each.replica in sizes and each.state not in AT_REST:
                yield "engine_memory", "backend", each.backend, sizes[each.replica]
    for host_name, gpu, _ in engines.gpus():
        name = f"{host_name}:{gpu.index}"
        yield "gpu_memory", "gpu", name, gpu.used
        if gpu.utilization is not None:
            yield "gpu_utilization", "gpu", name, gpu.utilization
