"""Routers, strategies and snapshots, made as the gateway makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from enginehouse import Candidate, Extractor, Filter, Requirements, Strategy
from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.config.routing import Aliases, AliasSettings
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Route, Snapshot
from enginehouse.routing.decision_plugins import StrategyTable
from enginehouse.routing.router import Router
from enginehouse.routing_facts import WeightedScorer
from tests.support.installed_plugins import installed_plugins

EXTRACTORS = ("tokens", "vision", "tools", "json_mode")
FILTERS = ("health", "capabilities", "context_length", "paused")
SCORERS = ("priority", "load", "latency")
BUNDLED = installed_plugins()


def make_snapshot(*candidates: Candidate) -> Snapshot:
    """A snapshot of the given candidates, by their models, in their order."""
    models: dict[str, tuple[Candidate, ...]] = {}
    for each in candidates:
        models[each.model] = (*models.get(each.model, ()), each)
    return Snapshot(models)


def make_strategy(type: str, weights: Sequence[int] = (50, 30, 20), **parameters: object) -> Strategy:
    """A bundled strategy with the bundled scorers."""
    made: Strategy = BUNDLED.create("strategy", type, parameters)
    scorers = zip(SCORERS, weights, strict=True)
    made.use([WeightedScorer(name, weight, BUNDLED.create("scorer", name)) for name, weight in scorers])
    return made


def make_router(
    strategy: str | tuple[str, Strategy] = "smart",
    *,
    aliases: Mapping[str, AliasSettings] | None = None,
    fallbacks: Mapping[str, Sequence[str]] | None = None,
    filters: Sequence[tuple[str, Filter]] = (),
    extractors: Sequence[tuple[str, Extractor]] = (),
    bundled_filters: Sequence[str] = FILTERS,
    now: Callable[[], float] = SYSTEM_CLOCK.now,
) -> Router:
    """A router of the bundled plugins, and of those given: plugins of another distribution, `acme`."""
    chosen = (strategy, make_strategy(strategy)) if isinstance(strategy, str) else strategy
    trusted = isinstance(strategy, str)
    return Router(
        [
            *((_bundled("extractor", name), BUNDLED.create("extractor", name)) for name in EXTRACTORS),
            *((PluginId("extractor", name, "acme"), extractor) for name, extractor in extractors),
        ],
        [
            *((_bundled("filter", name), BUNDLED.create("filter", name)) for name in bundled_filters),
            *((PluginId("filter", name, "acme"), filter) for name, filter in filters),
        ],
        StrategyTable(
            (PluginId("strategy", chosen[0], "routing" if trusted else "acme", trusted=trusted), chosen[1]), {}, {}
        ),
        Aliases(aliases or {}),
        fallbacks or {},
        now=now,
        hand_over=(_bundled("hand_over", "pairs"), BUNDLED.create("hand_over", "pairs")),
    )


def take_pick(strategy: Strategy, needs: Requirements, candidates: Sequence[Candidate]) -> Candidate:
    """Pick a candidate and carry that out."""
    chosen = strategy.pick(needs, candidates)
    strategy.placed(needs, chosen)
    return chosen


def take_route(router: Router, needs: Requirements, snapshot: Snapshot) -> Route:
    """Choose a route and carry it out, as a request does that goes there at once."""
    route = router.choose(needs, snapshot)
    if len(route.attempted) > 1:
        router.count_turn(route)
    router.carry_out(needs, route)
    return route


def _bundled(kind: str, type: str) -> PluginId:
    return PluginId(kind, type, "routing", trusted=True)
