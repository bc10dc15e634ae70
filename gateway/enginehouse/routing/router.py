"""The router: decides which replica serves a request. Compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import partial
from typing import Any, Final

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.config.routing import Aliases
from enginehouse.domain.errors import RequestError
from enginehouse.domain.explanation import Explanation, RouteDetails
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate, Reason, Route, Snapshot
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import InferenceRequest, Requirements
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.hand_overs import PairChoice
from enginehouse.routing.decision_plugins import FilterChain, StrategyTable, must_wait
from enginehouse.routing.guards import GuardedExtractor, GuardedScorer, of_type
from enginehouse.routing.models_to_try import ModelsToTry, ModelToTry
from enginehouse.routing.recorder import Recorder, refused_details
from enginehouse.routing.refusals import refusal
from enginehouse.telemetry.plugin_failures import plugin_errors, plugin_failed, wrong_result
from enginehouse.telemetry.plugin_times import SampledCall

_MATCH: Final = Reason.MATCH  # compiled code reads this name at once, and the enumeration's in 0.2 us
_RETRY: Final = Reason.RETRY


class Router:
    """Routes requests: takes the model's candidates, filters them and lets the strategy pick one.

    If no candidate is left, the alias's target and then the fallbacks are tried. Decisions read only the given snapshot
    and never wait. To choose a route changes nothing; ``carry_out`` tells the strategy of the one that a request takes.

    Plugins are given as pairs of identity and instance; ``scorers`` are those of other distributions,
    which the strategies have. ``now``: the clock; ``has_rules``: whether a filter reads headers and callers.
    ``filter_drops`` counts the candidates that each filter dropped. ``hand_over``: the plugin by which two engines
    serve a request, if there is one; ``hands_over``: whether a strategy makes use of it. ``others``: of aliases and
    fallbacks.
    """

    def __init__(
        self,
        extractors: Sequence[tuple[PluginId, Extractor]],
        filters: Sequence[tuple[PluginId, Filter]],
        strategies: StrategyTable,
        aliases: Aliases,
        fallbacks: Mapping[str, Sequence[str]],
        scorers: Sequence[GuardedScorer] = (),
        now: Callable[[], float] = SYSTEM_CLOCK.now,
        hand_over: tuple[PluginId, Any] | None = None,
    ) -> None:
        self._now = now
        self._marking = tuple([each for each in filters if type(each[1]).mark is not Filter.mark])
        self.has_rules = bool(self._marking)
        self._extractors = tuple(
            SampledCall(plugin, (extractor if plugin.trusted else GuardedExtractor(plugin, extractor)).extract)
            for plugin, extractor in extractors
        )
        self._extract = self._join([extractor for plugin, extractor in extractors if plugin.trusted])
        self._filter_chain = FilterChain(filters)
        self.filter_drops = self._filter_chain.dropped
        self.strategies = strategies
        self.hand_over: Final = hand_over  # not a HandOver: compiled code would raise TypeError for a wrong result
        self.hands_over: Final = strategies.hands_over and hand_over is not None
        self.others = ModelsToTry(aliases, fallbacks)
        self._kept: Sequence[Candidate] = ()
        self.sampled = (
            *self._extractors,
            *self._filter_chain.steps,
            *(runner.sampled for runner in strategies.runners),
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

    def apply_rules(self, requirements: Requirements, headers: Headers, *, rehearsal: bool = False) -> None:
        """Have filters set what they read in these headers, when the caller of the request is known.

        A ``rehearsal`` counts for no rule's share.
        """
        for plugin, filter in self._marking:
            with plugin_errors(plugin):
                filter.mark(requirements, headers, rehearsal)

    def why_not(self, requirements: Requirements, candidate: Candidate) -> str:
        """Why a request must not go to ``candidate``, whatever chose it; empty if it may."""
        if not self.has_rules:
            return ""
        _, drops = self._filter_chain.explained(requirements, [candidate])
        drop = drops.get(candidate.replica)
        return drop.why if drop is not None and drop.filter in [each.type for each, _ in self._marking] else ""

    def choose(
        self,
        requirements: Requirements,
        snapshot: Snapshot,
        exclude: Collection[str] = (),
        *,
        fallbacks: bool = True,
        traced_at: float | None = None,
        waited_for: Container[str] = (),
        recorder: Recorder | None = None,
    ) -> Route:
        """Choose the replica for a request with these requirements.

        If the strategy binds late and no slot is free where it sends the request, or others wait for the same model
        (``waited_for``), the route ``waits``: ask ``choose_again`` later.

        ``exclude`` names replicas that have just failed the request. Without ``fallbacks``, only the requested model
        and its alias's target are tried. With ``traced_at``, the time now, the route has the decision's figures.
        ``recorder`` notes what the decision looks at.

        Raises ``ModelNotFound``, ``NoHealthyBackend``, ``CapabilityMismatch`` or ``FallbackExhausted`` if no replica
        can serve, and ``PluginFailed`` if a plugin fails.
        """
        if traced_at is not None:
            return self._detailed(requirements, snapshot, exclude, fallbacks, traced_at, waited_for)
        model, reason = requirements.model, _RETRY if exclude else _MATCH
        attempted: tuple[str, ...] = (model,)
        candidates: Sequence[Candidate] = ()
        effects = requirements.rule_effects
        if effects is None or not effects.model:
            candidates = (recorder or self._filter_chain).keep(requirements, model, snapshot, exclude)
        if not candidates:
            model, reason, attempted, candidates = self._other_model(
                requirements, snapshot, exclude, fallbacks, recorder
            )
        self._kept = candidates
        runner = self.strategies.only or self.strategies.runner(model, requirements)
        chosen = runner.pick(requirements, candidates)
        waits = runner.binds_late and len(candidates) > 1 and must_wait(chosen, waited_for)
        return Route(requirements.model, chosen, reason, attempted, waits=waits)

    def choose_again(
        self,
        requirements: Requirements,
        snapshot: Snapshot,
        waiting: Route,
        exclude: Collection[str] = (),
        *,
        traced_at: float | None = None,
    ) -> Route | None:
        """The route to the same model for a request that waits along ``waiting``; ``None`` if no replica is left."""
        model = waiting.chosen.model
        candidates = self._filter_chain.keep(requirements, model, snapshot, exclude)
        if not candidates:
            return None
        runner = self.strategies.runner(model, requirements)
        chosen = runner.pick(requirements, candidates)
        waits = runner.binds_late and len(candidates) > 1 and must_wait(chosen)
        details = waiting.details
        if not waits and traced_at is not None:
            score, losers = runner.scores(requirements, candidates, chosen)
            details = RouteDetails(runner.type, len(snapshot.candidates(model)), {}, score, traced_at, losers)
        return Route(waiting.requested, chosen, waiting.reason, waiting.attempted, details, waits=waits)

    def count_turn(self, route: Route) -> None:
        """Count a new request that goes along ``route``, for which several models were tried.

        If it is for an alias, it was the turn of the target that was tried first. Attempts that follow are no turns:
        the alias has its shares of requests.
        """
        self.others.count_turn(route.attempted[0], route.attempted[1])

    def carry_out(self, requirements: Requirements, route: Route) -> None:
        """Note that a request takes ``route`` now, and set what follows it there. Call it once, before it is sent.

        Raises ``PluginFailed`` if the strategy fails.
        """
        runner = self.strategies.only or self.strategies.runner(route.chosen.model, requirements)
        route.placement = runner.placed(requirements, route.chosen, route.prefill)
        route.waits = False

    def _join(self, extractors: Sequence[Extractor]) -> Callable[[InferenceRequest, Requirements], None] | None:
        """One call for all extractors, if all are trusted and can do that."""
        if not extractors or len(extractors) < len(self._extractors):
            return None
        joined = extractors[0].joined(extractors[1:])
        return joined.extract if joined is not None else None

    def choose_pair(
        self,
        requirements: Requirements,
        snapshot: Snapshot,
        drivers: Mapping[str, DriverSupport],
        find: Callable[[tuple[str, ...]], Route],
        failed: tuple[str, ...] = (),
        recorder: Recorder | None = None,
    ) -> Route:
        """The route that ``find`` chooses, with a second engine where the strategy and the plugin of hand-overs say so.

        Raises ``RequestError``.
        """
        assert self.hand_over is not None
        plugin, hand_over = self.hand_over
        pick_decode = partial(self._pick_decode, requirements, snapshot, recorder)
        with plugin_errors(plugin):
            route = hand_over.route(PairChoice(requirements, drivers, find, pick_decode), failed)
        if not isinstance(route, Route):
            raise wrong_result(plugin, f"returned {of_type(route)} from route instead of a Route")
        if not (_is_of(snapshot, route.chosen) and (route.prefill is None or _is_of(snapshot, route.prefill))):
            raise wrong_result(plugin, "returned a Route to a replica that it was not given")
        return route

    def _pick_decode(
        self,
        requirements: Requirements,
        snapshot: Snapshot,
        recorder: Recorder | None,
        route: Route,
        exclude: Collection[str],
    ) -> Candidate | None:
        """The replica of the same model that the strategy has answer once the chosen one has read the prompt."""
        prefill = route.chosen
        served = requirements.at(prefill.model)
        candidates = (recorder or self._filter_chain).keep(served, prefill.model, snapshot, exclude)
        return self.strategies.runner(prefill.model, requirements).pick_decode(served, candidates, prefill)

    def explain(
        self,
        requirements: Requirements,
        snapshot: Snapshot,
        drivers: Mapping[str, DriverSupport] | None = None,
    ) -> Explanation:
        """Explain the decision that a request with these requirements would get now.

        An error is part of the explanation. ``drivers``: of every backend, by its name; without them, one engine is
        chosen.
        """
        runner_of = partial(self.strategies.runner, requirements=requirements)
        recorder = Recorder(requirements, self._filter_chain, runner_of, self._now())

        def find(exclude: tuple[str, ...]) -> Route:
            recorder.passed_over = exclude
            return self.choose(requirements, snapshot, exclude, recorder=recorder)

        try:
            if drivers is None or not self.hands_over:
                return recorder.explanation(find(()), None)
            route = self.choose_pair(requirements, snapshot, drivers, find, recorder=recorder)
            return recorder.explanation(route, None)
        except RequestError as error:
            return recorder.explanation(None, error)

    def refused(self, requirements: Requirements, snapshot: Snapshot, traced_at: float) -> RouteDetails:
        """The figures of a decision, begun at ``traced_at``, that found no replica."""
        runner = self.strategies.runner(requirements.model, requirements)
        return refused_details(self.explain(requirements, snapshot), runner.type, traced_at)

    def _detailed(
        self,
        requirements: Requirements,
        snapshot: Snapshot,
        exclude: Collection[str],
        fallbacks: bool,
        began: float,
        waited_for: Container[str],
    ) -> Route:
        self._filter_chain.noted = dropped = dict[str, int]()
        route = self.choose(requirements, snapshot, exclude, fallbacks=fallbacks, waited_for=waited_for)
        runner = self.strategies.runner(route.chosen.model, requirements)
        score, losers = runner.scores(requirements, self._kept, route.chosen)
        candidates = len(snapshot.candidates(route.attempted[-1]))
        route.details = RouteDetails(runner.type, candidates, dropped, score, began, losers)
        return route

    def _other_model(
        self,
        requirements: Requirements,
        snapshot: Snapshot,
        exclude: Collection[str],
        fallbacks: bool,
        recorder: Recorder | None,
    ) -> tuple[str, Reason, tuple[str, ...], Sequence[Candidate]]:
        """The first model beside the one that was asked for that has candidates, why it is tried, and all tried ones.

        Raises the ``RequestError`` that says why neither can serve.
        """
        others, tried = self._others_of(requirements, snapshot)
        if not fallbacks:
            others = [other for other in others if other.reason is not Reason.FALLBACK]
        attempted = list(tried)
        for model, reason in others:
            attempted.append(model)
            candidates = (recorder or self._filter_chain).keep(requirements, model, snapshot, exclude)
            if candidates:
                reason = _RETRY if exclude and reason is not Reason.FALLBACK else reason
                return model, reason, tuple(attempted), candidates
        raise refusal(requirements, snapshot, exclude, tried, others, self._filter_chain)

    def _others_of(
        self, requirements: Requirements, snapshot: Snapshot
    ) -> tuple[Sequence[ModelToTry], tuple[str, ...]]:
        """The models to try after those that were tried, and these: a rule may give the request to another one."""
        model, effects = requirements.model, requirements.rule_effects
        if effects is None or not effects.model:
            return self.others.of(model, snapshot), (model,)
        models = [ModelToTry(effects.model, Reason.ALIAS), *self.others.of(effects.model, snapshot)]
        if effects.spare:
            models.append(ModelToTry(effects.spare, Reason.FALLBACK))
        return models, ()


def _is_of(snapshot: Snapshot, candidate: Any) -> bool:
    return isinstance(candidate, Candidate) and any(candidate is each for each in snapshot.candidates(candidate.model))
