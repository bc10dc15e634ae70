"""A replica that the gateway launches."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse.config.schema import ModelSettings
from enginehouse.interfaces.drivers import Driver


class ManagedReplica(NamedTuple):
    """A replica that the gateway launches: its backend, its model and the driver of that.

    ``secrets``: the environment variables that hold secrets of the configuration.
    """

    backend: str
    model_name: str
    model: ModelSettings
    driver: Driver
    secrets: frozenset[str] = frozenset()
