"""A replica that the gateway launches or loads."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from enginehouse.config.managed import driver_of
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.replica import ReplicaState, replica_name
from enginehouse.engines.launch_line import NO_RULES, LaunchRules
from enginehouse.engines.remote.remote_server import RemoteLauncher, RemoteServer
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.launchers import Launcher


class ManagedReplica(NamedTuple):
    """A replica that the gateway launches, or loads on a ``server`` elsewhere: its backend, its model and its driver.

    ``rules``: what the rest of the configuration says about its launch.
    """

    backend: str
    model_name: str
    model: ModelSettings
    driver: DriverSupport
    rules: LaunchRules = NO_RULES
    server: RemoteServer | None = None

    @property
    def engine(self) -> str:
        """The name of its engine: of a launched one, the backend's."""
        return self.backend if self.server is None else replica_name(self.model_name, self.backend)

    def launcher(self, otherwise: Launcher) -> Launcher:
        """The launcher of its engine: its server, which loads the model, else the one given."""
        if self.server is None:
            return otherwise
        return RemoteLauncher(self.server, self.model_name, self.model.start_timeout)

    def probed_as(self, before: ManagedReplica) -> bool:
        """Whether the probes of the replica are those of ``before``, which had other settings."""
        old = (driver_of(before.model), before.model.health_path)
        return old == (driver_of(self.model), self.model.health_path)

    def running(self, state: ReplicaState) -> RunningEngine:
        """Its engine in ``state``, as ``/running`` shows it."""
        return RunningEngine(self.model_name, self.backend, state)


class RunningEngine(msgspec.Struct, frozen=True):
    """An engine that is neither stopped nor failed, as ``/running`` shows it."""

    model: str
    backend: str
    state: ReplicaState
