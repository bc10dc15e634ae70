from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from enginehouse import Candidate, PluginFailed, Requirements, Scorer
from enginehouse.app import build_router
from enginehouse.config.routing import RoutingSettings, ScorerSettings
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from enginehouse.testing import candidate, requirements
from tests.support.routing import make_snapshot


class NotANumber(Scorer):
    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [math.nan] * len(candidates)


def test_scorers_of_other_distributions_are_guarded() -> None:
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "geo", "module": "geo", "distribution": "geo-scorers", "version": "1"}
    registry.add([Registered(kind="scorer", type="distance", factory=NotANumber, **origin)])
    routing = RoutingSettings(strategy="weighted", scorers=[ScorerSettings(type="distance", name="near", weight=1)])
    router = build_router(Config(routing=routing), registry)
    with pytest.raises(PluginFailed, match="scorer 'near'") as caught:
        router.route(requirements("m"), make_snapshot(candidate("a", "m"), candidate("b", "m")))
    assert caught.value.details == {"kind": "scorer", "type": "distance", "plugin": "geo", "name": "near"}
