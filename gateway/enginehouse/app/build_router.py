"""Makes the router from ``[routing]`` and the registered plugins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from enginehouse.app.config_diff import differences
from enginehouse.app.plugin_instances import create, create_installed, identity
from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.config.routing import ScorerSettings
from enginehouse.config.schema import Config, ModelSettings
from enginehouse.config.shape import dotted
from enginehouse.domain.close_names import did_you_mean
from enginehouse.domain.errors import EnginehouseError, PluginError
from enginehouse.domain.foreign import describe
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.scorers import Scorer, WeightedScorer
from enginehouse.interfaces.strategies import Strategy
from enginehouse.plugin_manager.registry import Registry
from enginehouse.routing.guarded_scorer import GuardedScorer
from enginehouse.routing.router import Router

_LAUNCH_KEYS = ("options", "args", "env", "stop_command", "health_path")
"""The keys of a model that only concern the launch of its engine."""


def build_router(config: Config, registry: Registry) -> Router:
    """The router that ``[routing]`` describes."""
    routing = config.routing
    strategy, scorers, own = _strategy(config, registry)
    plugin = identity(registry, "strategy", routing.strategy)
    return Router(
        extractors=[
            *create_installed(config, registry, "extractor"),
            *((plugin._replace(kind="extractor"), each) for each in own),
        ],
        filters=list(_filters(config, registry)),
        strategy=(plugin, strategy),
        scorers=[each.scorer for each in scorers if isinstance(each.scorer, GuardedScorer)],
        aliases=routing.aliases,
        fallbacks=routing.fallbacks,
    )


def settle(config: Config, registry: Registry) -> tuple[Config, Sequence[str]]:
    """The configuration as a gateway uses it, with warnings.

    An unknown strategy is replaced by ``smart``, and one that fails too if ``plugins.on_error`` is ``"skip"``. Keys of
    parts that are not built yet have no effect.
    """
    warnings = list(_without_effect(config))
    if problem := _unusable_strategy(config, registry):
        warnings.append(problem)
        routing = msgspec.structs.replace(config.routing, strategy="smart")
        config = msgspec.structs.replace(config, routing=routing)
    return config, warnings


def _unusable_strategy(config: Config, registry: Registry) -> str:
    """Why ``smart`` replaces the configured strategy; empty if it does not."""
    strategy, known = config.routing.strategy, list(registry.types("strategy"))
    if strategy not in known:
        hint = did_you_mean(strategy, known) or f"known: {', '.join(known)}"
        return f"routing.strategy: there is no strategy '{strategy}', so 'smart' is used ({hint})"
    if config.plugins.on_error == "skip":
        try:
            _strategy(config, registry)
        except PluginError as error:
            return f"routing.strategy: {error}; 'smart' is used (plugins.on_error = \"skip\")"
    return ""


def _without_effect(config: Config) -> Iterator[str]:
    """Warnings of keys that are set but have no effect."""
    if not config.rescheduling.enabled:
        for path in differences(ReschedulingSettings(), config.rescheduling):
            yield f"{dotted(('rescheduling', *path))} has no effect while rescheduling.enabled is false"
    for name in config.discovery:
        yield f"{dotted(('discovery', name))} has no effect in this version"
    for name, model in config.models.items():
        for key in () if model.launches else _LAUNCH_KEYS:
            if getattr(model, key) != getattr(ModelSettings(), key):
                reason = "without driver, path and command, no engine is launched"
                yield f"{dotted(('models', name, key))} has no effect: {reason}"


def _strategy(config: Config, registry: Registry) -> tuple[Strategy, Sequence[WeightedScorer], Sequence[Extractor]]:
    """The configured strategy, its scorers, which it has, and its extractors.

    Raises ``ConfigError`` or ``PluginError``.
    """
    routing, type = config.routing, config.routing.strategy
    scorers = routing.scorers
    if type == "smart" or not scorers:
        weights = routing.weights
        scorers = [
            ScorerSettings(type=name, weight=w) for name in weights.__struct_fields__ if (w := getattr(weights, name))
        ]
    strategy: Strategy = create(config, registry, "strategy", type, "routing.strategy")
    made = [_scorer(config, registry, ref, f"routing.scorers[{n}]") for n, ref in enumerate(scorers)]
    try:
        strategy.use(made)
        own = list(strategy.extractors())
    except EnginehouseError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"the strategy '{type}' does not take its scorers, or has no extractors: {describe(error)}"
        raise registry.get("strategy", type).error(problem) from error
    return strategy, made, own


def _filters(config: Config, registry: Registry) -> Iterator[tuple[PluginId, Filter]]:
    if config.routing.filters is None:
        yield from create_installed(config, registry, "filter")
        return
    for type in config.routing.filters:
        made: Filter = create(config, registry, "filter", type, "routing.filters")
        yield identity(registry, "filter", type), made


def _scorer(config: Config, registry: Registry, ref: ScorerSettings, key: str) -> WeightedScorer:
    scorer: Scorer = create(config, registry, "scorer", ref.type, key, ref.parameters)
    plugin = identity(registry, "scorer", ref.type)
    if not plugin.trusted:  # the figures of bundled scorers are right; checking them takes as long as making them
        scorer = GuardedScorer(plugin._replace(name=ref.name), scorer)
    return WeightedScorer(ref.name or ref.type, ref.weight, scorer)
