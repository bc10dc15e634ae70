"""What every host works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from enginehouse.config.managed import driver_of, managed_backends
from enginehouse.config.schema import Config, Host
from enginehouse.domain.replica import replica_name
from enginehouse.engines.health_path import with_health_path
from enginehouse.engines.host_engines import Managed
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.schedulers import Scheduler
from enginehouse.interfaces.swappers import HostFacts, Swapper
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.telemetry.listeners import Observers


class Means(NamedTuple):
    """What every host works with. ``make_swapper`` prepares what it makes; ``make_launcher`` is told its type, the
    host, and where logs go.
    """

    config: Config
    fleet: Fleet
    upstreams: dict[str, Upstream]
    drivers: Mapping[str, Driver]
    observers: Observers
    make_scheduler: Callable[[], Scheduler]
    make_swapper: Callable[[HostFacts], Swapper]
    make_launcher: Callable[[str, str, Path], Launcher]

    def launcher(self, host: str) -> str:
        """The launcher that ``host`` is configured to have."""
        return self.config.hosts.get(host, Host()).launcher

    def managed(self, host: str) -> dict[str, Managed]:
        """Every replica that is configured to be launched on ``host``."""
        return {
            replica_name(name, backend): Managed(
                backend, name, model, with_health_path(self.drivers[driver_of(model)], model.health_path)
            )
            for name, model in self.config.models.items()
            if model.host == host
            for backend in managed_backends(name, model)
        }
