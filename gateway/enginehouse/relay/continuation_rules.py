"""The configured rules for streams whose engine breaks, and for moves."""

from __future__ import annotations

from enginehouse.config.schema import Config
from enginehouse.config.section import BrokenStreamRule


class ContinuationRules:
    """``migrate_timeout``: the time limit in seconds of each half of a move.

    ``moves_at_once``: how many streams a drain moves together.
    """

    def __init__(self, config: Config) -> None:
        self.migrate_timeout = config.rescheduling.migrate_timeout
        self.moves_at_once = config.rescheduling.moves_at_once
        self.max_continuations = config.routing.max_continuations
        self._otherwise = config.routing.broken_stream
        self._by_model = {name: model.broken_stream for name, model in config.models.items() if model.broken_stream}

    def of(self, model: str) -> BrokenStreamRule:
        """The rule for a stream of ``model`` whose engine breaks."""
        return self._by_model.get(model, self._otherwise)
