from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from enginehouse import Candidate, Filter, Strategy, WeightedScorer
from enginehouse.config.schema import Plugins
from enginehouse.fleet.snapshot import Snapshot
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.routing.router import Router

EXTRACTORS = ("tokens", "vision", "tools", "json_mode")
FILTERS = ("health", "capabilities", "context_length")
SCORERS = ("priority", "load", "latency")


@pytest.fixture(scope="session")
def snapshot() -> Callable[..., Snapshot]:
    """A snapshot of the given candidates, by their models, in their order."""

    def make(*candidates: Candidate) -> Snapshot:
        models: dict[str, tuple[Candidate, ...]] = {}
        for each in candidates:
            models[each.model] = (*models.get(each.model, ()), each)
        return Snapshot(models)

    return make


@pytest.fixture(scope="session")
def registry() -> Registry:
    return load_plugins(Plugins()).registry


@pytest.fixture(scope="session")
def strategy(registry: Registry) -> Callable[..., Strategy]:
    """A bundled strategy, made as the gateway makes it."""

    def make(type: str, weights: Sequence[int] = (50, 30, 20), **parameters: Any) -> Strategy:
        made: Strategy = registry.create("strategy", type, parameters)
        scorers = zip(SCORERS, weights, strict=True)
        made.use([WeightedScorer(name, weight, registry.create("scorer", name)) for name, weight in scorers])
        return made

    return make


@pytest.fixture(scope="session")
def router(registry: Registry, strategy: Callable[..., Strategy]) -> Callable[..., Router]:
    """A router of the bundled plugins."""

    def make(
        chosen: str | tuple[str, Strategy] = "smart",
        *,
        aliases: Mapping[str, str] | None = None,
        fallbacks: Mapping[str, Sequence[str]] | None = None,
        filters: Sequence[tuple[str, Filter]] = (),
        extractors: Sequence[tuple[str, Any]] = (),
        bundled_filters: Sequence[str] = FILTERS,
    ) -> Router:
        return Router(
            [*((name, registry.create("extractor", name)) for name in EXTRACTORS), *extractors],
            [*((name, registry.create("filter", name)) for name in bundled_filters), *filters],
            (chosen, strategy(chosen)) if isinstance(chosen, str) else chosen,
            aliases or {},
            fallbacks or {},
        )

    return make
