"""The router: decides which replica serves a request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.domain.errors import RequestError
from enginehouse.domain.instance import ClusterView
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate
from enginehouse.domain.request import InferenceRequest
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Explanation, Reason, Route, RouteDetails
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.strategies import Strategy
from enginehouse.routing.explain import NO_HAND_OVER, HandOverRules, explain
from enginehouse.routing.filter_chain import FilterChain
from enginehouse.routing.guarded_scorer import GuardedScorer
from enginehouse.routing.guards import GuardedExtractor
from enginehouse.routing.models_to_try import ModelToTry, models_to_try
from enginehouse.routing.refusals import refusal
from enginehouse.routing.snapshot import RoutingSnapshot
from enginehouse.routing.strategy_runner import StrategyRunner
from enginehouse.telemetry.plugin_failures import plugin_failed
from enginehouse.telemetry.plugin_times import SampledCall


class Router:
    """Routes requests: takes the model's candidates, filters them and lets the strategy pick one.

    If no candidate is left, the alias's target and then the fallbacks are tried. Decisions read only the given snapshot
    and never wait. Plugins are given as pairs of identity and instance; ``scorers`` are those of other distributions,
    which the strategy has. ``filter_drops`` counts the candidates that each filter dropped.
    """

    def __init__(
        self,
        extractors: Sequence[tuple[PluginId, Extractor]],
        filters: Sequence[tuple[PluginId, Filter]],
        strategy: tuple[PluginId, Strategy],
        aliases: Mapping[str, str],
        fallbacks: Mapping[str, Sequence[str]],
        scorers: Sequence[GuardedScorer] = (),
    ) -> None:
        self._extractors = tuple(
            SampledCall(plugin, (extractor if plugin.trusted else GuardedExtractor(plugin, extractor)).extract)
            for plugin, extractor in extractors
        )
        self._extract = self._join([extractor for plugin, extractor in extractors if plugin.trusted])
        self._filter_chain = FilterChain(filters)
        self.filter_drops = self._filter_chain.dropped
        self._strategy_runner = StrategyRunner(*strategy)
        self.hands_over = self._strategy_runner.hands_over
        """Whether the strategy may pick one replica for the prompt and another one for the answer."""
        self._others = models_to_try(aliases, fallbacks)
        self._kept: Sequence[Candidate] = ()
        self.sampled = (
            *self._extractors,
            *self._filter_chain.steps,
            self._strategy_runner.sampled,
            *(scorer.sampled for scorer in scorers),
        )
        """The calls of plugins whose times can be sampled."""

    def requirements(self, request: InferenceRequest) -> Requirements:
        """Run the extractors on ``request``. Raises their ``RequestError``, or ``PluginFailed``."""
        body = request.body
        requirements = Requirements(model=body.model, path=request.path, stream=body.stream is True)
        if self._extract is not None and not self._extractors[0].is_sampled:
            self._extract(request, requirements)
            return requirements
        for extractor in self._extractors:
            try:
                extractor.call(request, requirements)
            except RequestError:  # noqa: PERF203 - free until an extractor raises
                raise
            except BaseException as error:
                raise plugin_failed(extractor.plugin, error) from error
        return requirements

    def route(
        self,
        requirements: Requirements,
        snapshot: RoutingSnapshot,
        exclude: Collection[str] = (),
        *,
        fallbacks: bool = True,
        detailed: bool = False,
    ) -> Route:
        """Choose the replica for a request with these requirements.

        ``exclude`` names replicas that have just failed the request. Without ``fallbacks``, only the requested model
        and its alias's target are tried. A ``detailed`` route has the figures of the decision.

        Raises ``ModelNotFound``, ``NoHealthyBackend``, ``CapabilityMismatch`` or ``FallbackExhausted`` if no replica
        can serve, and ``PluginFailed`` if a plugin fails.
        """
        model = requirements.model
        if detailed:
            return self._detailed(requirements, snapshot, exclude, fallbacks)
        candidates = self._candidates(model, requirements, snapshot, exclude)
        if not candidates:
            others = self._others.get(model, ())
            if not fallbacks:
                others = tuple(other for other in others if other.reason is not Reason.FALLBACK)
            return self._route_to_other(requirements, snapshot, exclude, others)
        self._kept = candidates
        chosen = self._strategy_runner.pick(requirements, candidates)
        return Route(model, chosen, Reason.RETRY if exclude else Reason.MATCH, (model,))

    def _join(self, extractors: Sequence[Extractor]) -> Callable[[InferenceRequest, Requirements], None] | None:
        """One call for all extractors, if all are trusted and can do that."""
        if not extractors or len(extractors) < len(self._extractors):
            return None
        joined = extractors[0].joined(extractors[1:])
        return joined.extract if joined is not None else None

    def hand_over(
        self, requirements: Requirements, snapshot: RoutingSnapshot, route: Route, exclude: Collection[str] = ()
    ) -> Route:
        """``route``, or the one in which another replica of its model answers after the chosen one read the prompt."""
        model = route.chosen.model
        served = msgspec.structs.replace(requirements, model=model)
        candidates = self._candidates(model, served, snapshot, exclude)
        decode = self._strategy_runner.pick_decode(served, candidates, route.chosen)
        if decode is None or decode.replica == route.chosen.replica:
            return route
        return msgspec.structs.replace(route, chosen=decode, prefill=route.chosen)

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        """Hand the figures of all engines to the strategy."""
        self._strategy_runner.on_view(view, settings)

    def explain(
        self,
        requirements: Requirements,
        snapshot: RoutingSnapshot,
        hand_over_rules: HandOverRules = NO_HAND_OVER,
    ) -> Explanation:
        """Explain the decisions that ``route`` and ``hand_over`` would make now, without changing anything.

        An error is part of the explanation. ``hand_over_rules``: those of its endpoint.
        """
        others = self._others.get(requirements.model, ())
        return explain(requirements, snapshot, others, self._filter_chain, self._strategy_runner, hand_over_rules)

    def _detailed(
        self, requirements: Requirements, snapshot: RoutingSnapshot, exclude: Collection[str], fallbacks: bool
    ) -> Route:
        runner = self._strategy_runner
        self._filter_chain.noted = dropped = dict[str, int]()
        route = self.route(requirements, snapshot, exclude, fallbacks=fallbacks)
        score = runner.score(requirements, self._kept, route.chosen)
        details = RouteDetails(runner.type, len(snapshot.candidates(route.attempted[-1])), dropped, score)
        return Route(route.requested, route.chosen, route.reason, route.attempted, details)

    def _candidates(
        self, model: str, requirements: Requirements, snapshot: RoutingSnapshot, exclude: Collection[str]
    ) -> Sequence[Candidate]:
        candidates: Sequence[Candidate] = snapshot.candidates(model)
        if exclude:
            candidates = [candidate for candidate in candidates if candidate.replica not in exclude]
        return self._filter_chain.keep(requirements, candidates)

    def _route_to_other(
        self,
        requirements: Requirements,
        snapshot: RoutingSnapshot,
        exclude: Collection[str],
        others: Sequence[ModelToTry],
    ) -> Route:
        """Route to the first of ``others`` that can serve."""
        requested = requirements.model
        attempted = [requested]
        for model, reason in others:
            attempted.append(model)
            candidates = self._candidates(model, requirements, snapshot, exclude)
            if candidates:
                self._kept = candidates
                chosen = self._strategy_runner.pick(requirements, candidates)
                retried = exclude and reason is not Reason.FALLBACK
                return Route(requested, chosen, Reason.RETRY if retried else reason, tuple(attempted))
        raise refusal(requirements, snapshot, exclude, others, self._filter_chain)
