"""The configured rules for streams whose engine breaks."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse.config.routing import RoutingSettings
from enginehouse.config.schema import ModelSettings
from enginehouse.config.section import BrokenStreamRule
from enginehouse.interfaces.driver_support import DriverSupport


class ContinuationRules:
    """The rules for a stream whose engine breaks. ``drivers``: of every backend, by its name.

    ``migrate_timeout``: the time limit in seconds of each half of a move. ``moves_at_once``: how many streams a drain
    moves together.
    """

    def __init__(
        self,
        routing: RoutingSettings,
        models: Mapping[str, ModelSettings],
        drivers: Mapping[str, DriverSupport],
        migrate_timeout: float,
        moves_at_once: int,
    ) -> None:
        self.migrate_timeout = migrate_timeout
        self.moves_at_once = moves_at_once
        self.max_continuations = routing.max_continuations
        self.drivers = drivers
        self._otherwise = routing.broken_stream
        self._by_model = {name: model.broken_stream for name, model in models.items() if model.broken_stream}

    def of(self, model: str) -> BrokenStreamRule:
        """The rule for a stream of ``model``."""
        return self._by_model.get(model, self._otherwise)
