"""The parts of the gateway that every host uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from enginehouse.config.schema import BackendSettings, Config
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import replica_name
from enginehouse.engines.downloads import Downloads
from enginehouse.engines.launch_line import LaunchRules
from enginehouse.engines.managed_replica import ManagedReplica
from enginehouse.engines.placements import placement_of
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.schedulers import Scheduler
from enginehouse.interfaces.swappers import HostFacts
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.guarded_swapper import GuardedSwapper
from enginehouse.telemetry.observers import Observers


class HostContext(NamedTuple):
    """The configuration in force and the parts of the gateway that every host uses.

    ``make_swapper`` makes a prepared swapper. ``make_launcher`` takes the launcher's type and the host.
    ``has_launcher``: whether a host can launch anything; only one without a table may lack its launcher.
    """

    config: Config
    fleet: Fleet
    upstreams: dict[str, Upstream]
    drivers: Mapping[str, DriverSupport]
    rules: LaunchRules
    observers: Observers
    outside: Outside
    scheduler: PluginId
    make_scheduler: Callable[[], Scheduler]
    make_swapper: Callable[[HostFacts], GuardedSwapper]
    make_launcher: Callable[[str, str], Launcher]
    downloads: Downloads | None = None
    has_launcher: Callable[[str], bool] = lambda host: True

    def loading(self, host: str) -> dict[str, BackendSettings]:
        """The backends on ``host`` that load models themselves, by name."""
        return {
            name: backend
            for name, backend in self.config.backends.items()
            if backend.host == host and self.drivers[backend.driver].loading
        }

    def managed(self, host: str) -> dict[str, ManagedReplica]:
        """The replicas configured to be launched on ``host``, by name."""
        return {
            replica_name(name, backend): ManagedReplica(
                backend, name, model, driver, self.rules, placement=placement_of(self.config, model, host)
            )
            for name, model in self.config.models.items()
            for backend, place in model.backends(name).items()
            if place == host
            for driver in [self.drivers[model.engine_driver]]
        }
