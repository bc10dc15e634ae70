"""Makes the router from ``[routing]`` and the registered plugins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

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

_SWITCHED = frozenset({"error_share", "zone", "rule", "canary", "tier"})
"""The filters that other keys of the configuration than ``routing.filters`` switch on."""
_SESSION = "session_id"
"""The extractor that runs only if a strategy reads the session of a request."""
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
        installed = [type for type in registry.types("extractor") if type != _SESSION]
        own = collect(lambda: [*_own_extractors(config, registry, list(self._made.values()))]) or ()
        self._extractors = [*create_each(config, registry, "extractor", findings, installed), *own]
        self._filters = collect(lambda: [*_filters(config, registry)]) or []
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


def _own_extractors(
    config: Config, registry: Registry, made: Sequence[_MadeStrategy]
) -> Iterator[tuple[PluginId, Extractor]]:
    """The extractors of strategies, and that of the session if one reads it. Equal bundled ones run once."""
    seen: list[Extractor] = []
    for each in made:
        for extractor in each.extractors:
            if not (each.plugin.trusted and extractor in seen):
                yield each.plugin._replace(kind="extractor"), extractor
            seen.append(extractor)
    if any(each.strategy.reads_session for each in made):
        own = {"sources": config.routing.session}
        yield (
            identity(registry, "extractor", _SESSION),
            create(config, registry, "extractor", _SESSION, "routing.session", own),
        )


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


def _filters(config: Config, registry: Registry) -> Iterator[tuple[PluginId, Filter]]:
    """The configured filters, first those of zones, rules and tiers, which ``routing.filters`` cannot leave out."""
    routing, chosen = config.routing, config.routing.filters

    def switched(type: str, key: str, **own: object) -> tuple[PluginId, Filter]:
        made: Filter = create(config, registry, "filter", type, key, msgspec.to_builtins(own))
        return identity(registry, "filter", type), made

    if config.zones:
        yield switched("zone", "zones", zones=config.zones)
    if routing.rules:
        yield switched("rule", "routing.rules", rules=routing.rules)
        yield switched("canary", "routing.rules")
    if routing.least_tier:
        yield switched("tier", "routing.least_tier", least=routing.least_tier)
    if chosen is None:
        yield from create_installed(config, registry, "filter", [*_not_switched(registry.types("filter"))])
    for type in _not_switched(chosen or ()):
        yield switched(type, "routing.filters")
    if routing.error_share is not None:
        yield switched("error_share", "routing.error_share", most=routing.error_share)


def _not_switched(types: Iterable[str]) -> Iterator[str]:
    return (type for type in types if type not in _SWITCHED)


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
