"""A replica that the gateway launches or loads."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from enginehouse.config.schema import ModelSettings
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.launch_rules import NO_RULES, LaunchRules
from enginehouse.engines.remote.remote_server import RemoteServer
from enginehouse.interfaces.driver_support import DriverSupport


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

    def running(self, state: ReplicaState) -> RunningEngine:
        """Its engine in ``state``, as ``/running`` shows it."""
        return RunningEngine(self.model_name, self.backend, state)


class RunningEngine(msgspec.Struct, frozen=True):
    """An engine that is neither stopped nor failed, as ``/running`` shows it."""

    model: str
    backend: str
    state: ReplicaState
