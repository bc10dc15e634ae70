"""The router: from a request to the replica that serves it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.request import InferenceRequest
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Explanation, Reason, Route
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.strategies import Strategy
from enginehouse.routing.attempts import Attempt, attempts_by_name
from enginehouse.routing.chooser import Chooser
from enginehouse.routing.explain import explain
from enginehouse.routing.failures import plugin_failed
from enginehouse.routing.refusals import refusal
from enginehouse.routing.sieve import Sieve
from enginehouse.routing.snapshot import RoutingSnapshot


class Router:
    """Routes requests: candidates for the model, filters, if need be the alias and then the fallbacks, the strategy.

    Reads the snapshot it is given and nothing else; waits for nothing. Plugins come with their instance names.
    """

    def __init__(
        self,
        extractors: Sequence[tuple[str, Extractor]],
        filters: Sequence[tuple[str, Filter]],
        strategy: tuple[str, Strategy],
        aliases: Mapping[str, str],
        fallbacks: Mapping[str, Sequence[str]],
    ) -> None:
        self._extractors = tuple((name, extractor.extract) for name, extractor in extractors)
        self._sieve = Sieve(filters)
        self._chooser = Chooser(*strategy)
        self._attempts = attempts_by_name(aliases, fallbacks)

    def requirements(self, request: InferenceRequest) -> Requirements:
        """What ``request`` needs, as the extractors see it. Raises what they raise, or ``PluginFailed``."""
        body = request.body
        requirements = Requirements(model=body.model, path=request.path, stream=body.stream is True)
        for name, extract in self._extractors:
            try:
                extract(request, requirements)
            except RequestError:  # noqa: PERF203 - costs nothing until something is raised
                raise
            except Exception as error:
                raise plugin_failed("extractor", name, error) from error
        return requirements

    def route(
        self,
        requirements: Requirements,
        snapshot: RoutingSnapshot,
        exclude: Collection[str] = (),
        *,
        fallbacks: bool = True,
    ) -> Route:
        """The replica that serves a request with these requirements.

        ``exclude`` names replicas that just failed it. Without ``fallbacks`` it goes to the model that it names or, by
        its alias, the one that this stands for, and to no other. Raises ``ModelNotFound``, ``NoHealthyBackend``,
        ``CapabilityMismatch`` or ``FallbackExhausted`` when nothing can, ``PluginFailed`` when a plugin raised.
        """
        model = requirements.model
        candidates = self._candidates(model, requirements, snapshot, exclude)
        if not candidates:
            attempts = self._attempts_for(requirements)
            if not fallbacks:
                attempts = [attempt for attempt in attempts if attempt.reason is not Reason.FALLBACK]
            return self._elsewhere(requirements, snapshot, exclude, attempts)
        chosen = self._chooser.pick(requirements, candidates)
        return Route(model, chosen, Reason.RETRY if exclude else Reason.MATCH, (model,))

    def explain(self, requirements: Requirements, snapshot: RoutingSnapshot) -> Explanation:
        """What ``route`` would do now and why, changing nothing. An error is part of the explanation."""
        return explain(requirements, snapshot, self._attempts_for(requirements), self._sieve, self._chooser)

    def _candidates(
        self, model: str, requirements: Requirements, snapshot: RoutingSnapshot, exclude: Collection[str]
    ) -> Sequence[Candidate]:
        candidates: Sequence[Candidate] = snapshot.candidates(model)
        if exclude:
            candidates = [candidate for candidate in candidates if candidate.replica not in exclude]
        return self._sieve.keep(requirements, candidates)

    def _elsewhere(
        self,
        requirements: Requirements,
        snapshot: RoutingSnapshot,
        exclude: Collection[str],
        attempts: Sequence[Attempt],
    ) -> Route:
        """A route to another model than the one that was asked for: the first of ``attempts`` that can serve."""
        requested = requirements.model
        attempted = [requested]
        for model, reason in attempts:
            attempted.append(model)
            candidates = self._candidates(model, requirements, snapshot, exclude)
            if candidates:
                chosen = self._chooser.pick(requirements, candidates)
                retried = exclude and reason is not Reason.FALLBACK
                return Route(requested, chosen, Reason.RETRY if retried else reason, tuple(attempted))
        raise refusal(requirements, snapshot, exclude, attempts, self._sieve)

    def _attempts_for(self, requirements: Requirements) -> Sequence[Attempt]:
        return self._attempts.get(requirements.model, ())
