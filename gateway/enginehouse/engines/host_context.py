"""What hosts launch, as it is configured, and the parts of the gateway that every host uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from enginehouse.config.parameters import decode_parameters
from enginehouse.config.schema import BackendSettings, Config, ModelSettings
from enginehouse.config.shape import dotted
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import replica_name
from enginehouse.engines.launch_line import NO_RULES, LaunchRules
from enginehouse.engines.pulled_models import Downloads
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.model_servers import ModelServer
from enginehouse.interfaces.places import PlacementOptions
from enginehouse.interfaces.schedulers import Scheduler
from enginehouse.interfaces.swappers import HostFacts
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.guarded_swapper import GuardedSwapper
from enginehouse.telemetry.observers import Observers


def placement_of(config: Config, model: ModelSettings, host: str) -> dict[str, Any]:
    """The options for ``model`` on ``host``: those of the host, and those of the model over them."""
    return {**config.host_settings(host).placement, **model.placement}


def decode_placement(
    launcher: Launcher, options: Mapping[str, Any], type: str = "", table: str = "placement"
) -> PlacementOptions:
    """The options, as ``launcher`` of this ``type`` declares them. Raises ``ConfigError``, naming ``table``."""
    owner = f"launcher '{type}'" if type else "launcher"
    decoded = decode_parameters(launcher.Options, options, table=table, owner=owner, word="option")
    return decoded or PlacementOptions()


def check_placement(config: Config, name: str, host: str, launcher: Launcher) -> None:
    """Check the options of the model ``name`` on ``host``. Raises ``ConfigError``."""
    model, type = config.models[name], config.host_settings(host).launcher
    table = ("models", name, "placement") if model.placement else ("hosts", host, "placement")
    decode_placement(launcher, placement_of(config, model, host), type, dotted(table))
    if launcher.places_gpus and isinstance(model.gpus, list):
        raise ConfigError(
            f"the launcher '{type}' of host '{host}' chooses the GPUs itself",
            key=dotted(("models", name, "gpus")),
            remedy="give their number",
        )


class ManagedReplica(NamedTuple):
    """A replica that the gateway launches, or loads on a ``server`` elsewhere: its backend, its model and its driver.

    ``rules``: what the rest of the configuration says about its launch. ``placement``: the options of its place, as the
    configuration has them.
    """

    backend: str
    model_name: str
    model: ModelSettings
    driver: DriverSupport
    rules: LaunchRules = NO_RULES
    server: ModelServer | None = None
    placement: Mapping[str, Any] = {}

    @property
    def replica(self) -> str:
        """Its name."""
        return replica_name(self.model_name, self.backend)

    @property
    def engine(self) -> str:
        """The name of its engine: of a launched one, the backend's."""
        return self.backend if self.server is None else self.replica

    def probed_as(self, before: ManagedReplica) -> bool:
        """Whether the probes of the replica are those of ``before``, which had other settings."""
        old, new = before.model, self.model
        same = (old.engine_driver, old.health_path) == (new.engine_driver, new.health_path)
        return same and bool(old.concurrency) is bool(new.concurrency)


class HostContext(NamedTuple):
    """The configuration in force and the parts of the gateway that every host uses.

    ``facts``: of a host, as in ``facts_of_hosts``. ``make_swapper`` makes a prepared swapper. ``make_launcher`` takes
    the launcher's type and the host. ``has_launcher``: whether a host can launch anything; only one without a table may
    lack its launcher.
    """

    config: Config
    fleet: Fleet
    upstreams: dict[str, Upstream]
    drivers: Mapping[str, DriverSupport]
    rules: LaunchRules
    facts: Callable[[str], HostFacts]
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
        models = self.config.models
        return {
            replica: ManagedReplica(
                replica.removeprefix(replica_name(each.model, "")),  # names may have the sign between them
                each.model,
                model,
                self.drivers[model.engine_driver],
                self.rules,
                placement=placement_of(self.config, model, host),
            )
            for replica, each in self.facts(host).replicas.items()
            for model in [models[each.model]]
        }
