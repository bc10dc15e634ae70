"""A replica that the gateway launches or loads, as it is configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from enginehouse.config.schema import ModelSettings
from enginehouse.domain.replica import replica_name
from enginehouse.engines.launch_line import NO_RULES, LaunchRules
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.model_servers import ModelServer


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
        old = (before.model.engine_driver, before.model.health_path)
        return old == (self.model.engine_driver, self.model.health_path)
