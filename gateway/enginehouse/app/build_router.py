"""Makes the router from ``[routing]`` and the registered plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from enginehouse.aio.clock import SYSTEM_CLOCK, Clock
from enginehouse.app.config_diff import differences
from enginehouse.app.findings import Findings
from enginehouse.app.plugin_instances import create, create_each, create_installed, find_only, identity, prepare
from enginehouse.config.parameters import plugin_table
from enginehouse.config.routing import Aliases, ScorerSettings
from enginehouse.config.schema import Config
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.engine_caches import EngineCaches
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.scorers import Scorer, WeightedScorer
from enginehouse.interfaces.strategies import Strategy
from enginehouse.plugin_manager.registry import Registry
from enginehouse.routing.decision_plugins import StrategyTable
from enginehouse.routing.guards import GuardedScorer
from enginehouse.routing.router import Router
from enginehouse.routing.rules import CanaryFilter, RuleFilter, Rules, TierFilter, Tiers, ZoneFilter, Zones
from enginehouse.routing.session import SessionExtractor

_ERROR_SHARE = "error_share"
"""The filter that ``routing.error_share`` switches on."""
_OF_THE_RELAY = frozenset(
    {
        "max_retries",
        "retry_budget",
        "hedge_after",
        "shed_after",
        "gather",
        "broken_stream",
        "max_continuations",
        "answer_model",
        "mirrors",
    }
)
"""The keys of ``[routing]`` that no router reads."""
_ROUTING_KINDS = ("extractor", "filter", "scorer", "strategy", "hand_over")


class _MadeStrategy(NamedTuple):
    """A strategy with its scorers, which it has, and its extractors."""

    plugin: PluginId
    strategy: Strategy
    scorers: Sequence[WeightedScorer]
    extractors: Sequence[Extractor]


class RouterPlugins:
    """The plugins that ``[routing]`` names, made for a router.

    ``findings`` gets the errors; with one, this must not be used.
    """

    def __init__(self, config: Config, registry: Registry, findings: Findings) -> None:
        routing = self._routing = config.routing
        self._registry = registry
        self._of_rules = [rule.strategy for rule in routing.rules if rule.strategy]
        types = dict.fromkeys([routing.strategy, *routing.strategies.values(), *self._of_rules])
        collect = findings.collect
        made = {type: collect(partial(make_strategy, config, registry, type)) for type in types}
        self._made = {type: each for type, each in made.items() if each is not None}
        self._zones = zones = Zones(config.zones) if config.zones else None
        own = _own_extractors(config, list(self._made.values()))
        self._extractors = [*create_each(config, registry, "extractor", findings), *own]
        self._filters = [*_required_filters(config, zones), *(collect(lambda: [*_filters(config, registry)]) or ())]
        self._hand_over = collect(lambda: find_only(config, registry, "hand_over", "hand prompts over"))

    def router(
        self, clock: Clock = SYSTEM_CLOCK, caches: EngineCaches | None = None, waiting: Mapping[str, int] | None = None
    ) -> Router:
        """The router. ``caches``: those of the engines that publish events.

        ``waiting``: how many requests wait for each model now.
        """
        routing = self._routing
        for type, each in self._made.items():
            ready = partial(prepare, self._registry, "strategy", type)
            ready(partial(each.strategy.start, clock.now))
            if waiting is not None:
                ready(partial(each.strategy.use_waiting, waiting))
            if caches is not None:
                ready(partial(each.strategy.use_caches, caches))
        by_type = {type: (each.plugin, each.strategy) for type, each in self._made.items()}
        scorers = [scorer.scorer for each in self._made.values() for scorer in each.scorers]
        return Router(
            extractors=self._extractors,
            filters=self._filters,
            zones=self._zones,
            tiers=Tiers(routing.least_tier) if routing.least_tier else None,
            rules=Rules(routing.rules) if routing.rules else None,
            strategies=StrategyTable(
                by_type[routing.strategy],
                {model: by_type[type] for model, type in routing.strategies.items()},
                {type: by_type[type] for type in self._of_rules},
            ),
            scorers=[each for each in scorers if isinstance(each, GuardedScorer)],
            aliases=Aliases(routing.aliases),
            fallbacks=routing.fallbacks,
            now=clock.now,
            hand_over=self._hand_over,
        )


def build_router(config: Config, registry: Registry) -> Router:
    """A router that decides as that of a gateway with ``config``. Raises ``ConfigError`` or ``PluginError``."""
    findings = Findings()
    plugins = RouterPlugins(config, registry, findings)
    findings.check()
    return plugins.router()


def _own_extractors(config: Config, made: Sequence[_MadeStrategy]) -> Iterator[tuple[PluginId, Extractor]]:
    """The extractors of strategies, and that of the session if one reads it. Equal bundled ones run once."""
    seen: list[Extractor] = []
    for each in made:
        for extractor in each.extractors:
            if not (each.plugin.trusted and extractor in seen):
                yield each.plugin._replace(kind="extractor"), extractor
            seen.append(extractor)
    if any(each.strategy.reads_session for each in made):
        yield PluginId("extractor", "session", trusted=True), SessionExtractor(config.routing.session)


def make_strategy(config: Config, registry: Registry, type: str, key: str = "routing.strategy") -> _MadeStrategy:
    """A strategy of ``type``, configured as ``key``. Raises ``ConfigError`` or ``PluginError``."""
    routing = config.routing
    scorers = routing.scorers
    if type == "smart" or not scorers:
        weights = routing.weights
        scorers = [
            ScorerSettings(type=name, weight=w) for name in weights.__struct_fields__ if (w := getattr(weights, name))
        ]
    strategy: Strategy = create(config, registry, "strategy", type, key)
    made = [_scorer(config, registry, ref, f"routing.scorers[{n}]") for n, ref in enumerate(scorers)]

    def take() -> Sequence[Extractor]:
        strategy.use(made)
        return list(strategy.extractors())

    problem = f"the strategy '{type}' does not take its scorers, or has no extractors:"
    own = prepare(registry, "strategy", type, take, problem)
    return _MadeStrategy(identity(registry, "strategy", type), strategy, made, own)


def _required_filters(config: Config, zones: Zones | None) -> Iterator[tuple[PluginId, Filter]]:
    """The filters that ``routing.filters`` cannot leave out."""
    if zones is not None:
        yield PluginId("filter", "zone", trusted=True), ZoneFilter(zones)
    if config.routing.rules:
        yield PluginId("filter", "rule", trusted=True), RuleFilter()
        yield PluginId("filter", "canary", trusted=True), CanaryFilter()
    if config.routing.least_tier:
        yield PluginId("filter", "tier", trusted=True), TierFilter()


def _filters(config: Config, registry: Registry) -> Iterator[tuple[PluginId, Filter]]:
    share, chosen = config.routing.error_share, config.routing.filters
    if chosen is None:
        installed = create_installed(config, registry, "filter")
        yield from (pair for pair in installed if pair[0].type != _ERROR_SHARE)
    for type in chosen or ():
        made: Filter
        if type != _ERROR_SHARE:
            made = create(config, registry, "filter", type, "routing.filters")
            yield identity(registry, "filter", type), made
    if share is not None:
        made = create(config, registry, "filter", _ERROR_SHARE, "routing.error_share", {"most": share})
        yield identity(registry, "filter", _ERROR_SHARE), made


def _scorer(config: Config, registry: Registry, ref: ScorerSettings, key: str) -> WeightedScorer:
    scorer: Scorer = create(config, registry, "scorer", ref.type, key, ref.parameters)
    plugin = identity(registry, "scorer", ref.type)
    if not plugin.trusted:  # the figures of bundled scorers are right; checking them takes as long as making them
        scorer = GuardedScorer(plugin._replace(name=ref.name), scorer)
    return WeightedScorer(ref.name or ref.type, ref.weight, scorer)


def new_router(old: Config, new: Config, registry: Registry, findings: Findings) -> RouterPlugins | None:
    """What a router for ``new`` needs; ``None`` if that of ``old`` will do, which keeps the state of its plugins."""
    types = [(kind, type) for kind in _ROUTING_KINDS for type in registry.types(kind)]
    before, after = ([plugin_table(config.plugins, *each) for each in types] for config in (old, new))
    changed = any(path[0] not in _OF_THE_RELAY for path in differences(old.routing, new.routing))
    return RouterPlugins(new, registry, findings) if changed or before != after or old.zones != new.zones else None
