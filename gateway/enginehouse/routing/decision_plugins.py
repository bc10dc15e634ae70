"""Runs the plugins that decide where a request goes: the filters, and then a strategy. Compiled.

Their exceptions become ``PluginFailed``, except for a ``RequestError``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

from enginehouse.config.scheduling import ReschedulingSettings
from enginehouse.domain.errors import (
    CapabilityMismatch,
    ContextLengthExceeded,
    NoHealthyBackend,
    RequestError,
)
from enginehouse.domain.explanation import PrefixFacts, Verdict
from enginehouse.domain.foreign import describe
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate, Snapshot
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.strategies import Placement, Strategy
from enginehouse.routing.guards import GuardedFilter, GuardedPlacement, of_type
from enginehouse.telemetry.checked_plugin import CheckedPlugin, methods_of
from enginehouse.telemetry.plugin_failures import plugin_errors, plugin_failed, wrong_result
from enginehouse.telemetry.plugin_times import SampledCall

_log = logging.getLogger(__name__)

_OF_STRATEGIES: Final = methods_of(Strategy, but=("pick", "recall"))
_LISTED_FIRST = ("vision", "tools", "json_mode", "context_length")
_MOST_LOSERS: Final = 10
"""The most losers that a trace names."""


class Drop(NamedTuple):
    """The filter that dropped a candidate, and its reason."""

    filter: str
    why: str


class FilterChain:
    """The filters in order, those that only prefer some candidates last: they never drop all that are left.

    ``dropped`` counts the candidates that each filter dropped, and ``noted`` does so since it was last replaced.
    """

    def __init__(self, filters: Sequence[tuple[PluginId, Filter]]) -> None:
        ordered = sorted(filters, key=lambda pair: pair[1].prefers)
        self._filters = tuple(
            (plugin, filter if plugin.trusted else cast("Filter", GuardedFilter(plugin, filter)))
            for plugin, filter in ordered
        )
        self._required = sum(not filter.prefers for _, filter in filters)
        self.dropped: Counter[str] = Counter({plugin.type: 0 for plugin, _ in self._filters})
        self.noted: dict[str, int] = {}
        self.steps = tuple(SampledCall(plugin, filter.keep) for plugin, filter in self._filters)
        self._joined = self._join()

    def keep(
        self, requirements: Requirements, model: str, snapshot: Snapshot, exclude: Collection[str] = ()
    ) -> Sequence[Candidate]:
        """The candidates of ``model`` that every filter keeps, without the replicas of ``exclude``."""
        candidates: Sequence[Candidate] = snapshot.candidates(model)
        if exclude:
            candidates = [candidate for candidate in candidates if candidate.replica not in exclude]
        joined = self._joined
        if joined is not None and not self.steps[0].is_sampled:
            try:
                if len(joined(requirements, candidates)) == len(candidates):
                    return candidates
            except Exception:
                pass  # the filter at fault raises again below, under its name
        for position, step in enumerate(self.steps):
            before = len(candidates)
            if not before:
                break
            try:
                kept = step.call(requirements, candidates)
            except RequestError:
                raise
            except BaseException as error:
                raise plugin_failed(step.plugin, error) from error
            if kept or position < self._required:
                candidates = kept
            if len(candidates) < before:
                self._note(step.plugin.type, before - len(candidates))
        return candidates

    def _join(self) -> Callable[[Requirements, Sequence[Candidate]], Sequence[Candidate]] | None:
        """One call for all filters, if they can do that."""
        filters = [filter for _, filter in self._filters]
        joined = filters[0].joined(filters[1:]) if filters else None
        return joined.keep if joined is not None else None

    def _note(self, filter: str, count: int) -> None:
        self.dropped[filter] += count
        self.noted[filter] = self.noted.get(filter, 0) + count

    def explained(
        self, requirements: Requirements, candidates: Sequence[Candidate]
    ) -> tuple[Sequence[Candidate], dict[str, Drop]]:
        """What the filters keep, and for each dropped candidate, by replica: the filter and its reason."""
        kept, drops = candidates, {}
        for position, before, kept in self._stages(requirements, candidates):
            plugin, filter = self._filters[position]
            replicas = {candidate.replica for candidate in kept}
            with plugin_errors(plugin):
                for candidate in before:
                    if candidate.replica not in replicas:
                        drops[candidate.replica] = Drop(plugin.type, filter.why(requirements, candidate))
        return kept, drops

    def refusal(self, model: str, requirements: Requirements, candidates: Sequence[Candidate]) -> RequestError:
        """The error for ``candidates`` of ``model``, none of which the filters keep.

        If the filter that dropped the last candidates names missing capabilities, the error lists them and those that
        later filters miss in these candidates.
        """
        for position, before, kept in self._stages(requirements, candidates):
            if not kept:
                plugin, filter = self._filters[position]
                with plugin_errors(plugin):
                    error = filter.refusal(requirements, before)
                if error is not None:
                    return error
                missing = self._missing(position, requirements, before)
                return _lacking(model, missing, requirements, before) if missing else _unhealthy(model, before)
        return _unhealthy(model, candidates)

    def _stages(
        self, requirements: Requirements, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[int, Sequence[Candidate], Sequence[Candidate]]]:
        """Yield each filter's position, input and output, until no candidate is left."""
        for position, (plugin, filter) in enumerate(self._filters):
            if not candidates:
                return
            with plugin_errors(plugin):
                kept = filter.keep(requirements, candidates)
            if not kept and position >= self._required:
                kept = candidates
            yield position, candidates, kept
            candidates = kept

    def _missing(self, position: int, requirements: Requirements, candidates: Sequence[Candidate]) -> list[str]:
        found: dict[str, None] = {}
        for plugin, filter in self._filters[position:]:
            with plugin_errors(plugin):
                found |= dict.fromkeys(
                    lacking for candidate in candidates for lacking in filter.missing(requirements, candidate)
                )
            if not found:
                return []
        known_first = (name for name in _LISTED_FIRST if name in found)
        return list(dict.fromkeys((*known_first, *found)))


def _unhealthy(model: str, candidates: Sequence[Candidate]) -> NoHealthyBackend:
    return NoHealthyBackend(model, problems={each.backend: each.problem for each in candidates if each.problem})


def _lacking(
    model: str, missing: Sequence[str], requirements: Requirements, candidates: Sequence[Candidate]
) -> CapabilityMismatch:
    """The error for what all ``candidates`` lack. A prompt that is only too long has one that clients recognise."""
    if list(missing) == ["context_length"]:
        limit = max((candidate.capabilities.context_length or 0 for candidate in candidates), default=0)
        return ContextLengthExceeded(model, requirements.estimated_tokens, limit)
    return CapabilityMismatch(model, missing)


def must_wait(chosen: Candidate, waited_for: Container[str] = ()) -> bool:
    """Whether a request that is picked ``chosen`` of several candidates waits for its model.

    It does if the slots there are taken, or if others wait for the model, whose turn comes first. An only candidate
    gets it at once: its host orders what waits there.
    """
    load = chosen.load
    return load.slots > 0 and (load.pending >= load.slots or chosen.model in waited_for)


class StrategyRunner:
    """Runs a strategy. Results that break the rules of ``Strategy`` become ``PluginFailed`` too.

    Where that would take time in every request, those of bundled strategies are not looked at.

    ``hands_over``: it may pick one candidate for the prompt and another one for the answer. ``binds_late``: requests
    wait for their model, not for a replica.
    """

    def __init__(self, plugin: PluginId, strategy: Strategy) -> None:
        self._plugin = plugin
        # Not a Strategy: compiled code would raise TypeError for a wrong result.
        self._strategy: Final[Any] = strategy if plugin.trusted else CheckedPlugin(plugin, strategy, _OF_STRATEGIES)
        self.hands_over = type(strategy).pick_decode is not Strategy.pick_decode
        self.binds_late = strategy.binds_late and not self.hands_over
        self._follows = (
            type(strategy).placed is not Strategy.placed or type(strategy).placed_pair is not Strategy.placed_pair
        )
        self._scores_alone = type(strategy).score is not Strategy.score
        self.sampled = SampledCall(plugin, strategy.pick if plugin.trusted else self._checked_pick)

    @property
    def type(self) -> str:
        """The strategy's type."""
        return self._plugin.type

    def tell(self, method: str, *facts: object) -> None:
        """Call a method that returns nothing. A failure is logged."""
        with suppress(RequestError), plugin_errors(self._plugin):
            getattr(self._strategy, method)(*facts)

    def learned(self) -> Mapping[str, Mapping[str, float]]:
        """What the strategy has learned of each backend. A failure is logged."""
        with suppress(RequestError), plugin_errors(self._plugin):
            return self._strategy.learned()  # type: ignore[no-any-return]
        return {}

    def memory(self, method: str) -> bytes:
        """What ``news`` or ``remembered`` returns; empty after a failure, which is logged."""
        with suppress(RequestError), plugin_errors(self._plugin):
            return getattr(self._strategy, method)()  # type: ignore[no-any-return]
        return b""

    def recall(self, remembered: bytes) -> None:
        """Give the strategy what another instance of it knew. A failure is logged."""
        try:
            self._strategy.recall(remembered)
        except Exception as error:
            _log.warning(
                "The %s learns from scratch, because it cannot use what was kept: %s", self._plugin, describe(error)
            )

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        try:
            return self.sampled.call(requirements, candidates)  # type: ignore[no-any-return]
        except RequestError:
            raise
        except BaseException as error:
            raise plugin_failed(self._plugin, error) from error

    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        with plugin_errors(self._plugin):
            chosen = self._strategy.pick_decode(requirements, candidates, prefill)
            return None if chosen is None else self._one_of(candidates, chosen)

    def placed(self, requirements: Requirements, chosen: Candidate, prefill: Candidate | None) -> Placement | None:
        """Tell the strategy that a request goes to ``chosen``; what follows it there, if anything does.

        ``prefill``: reads its prompt, if another one does.
        """
        if not self._follows:
            return None
        try:
            if prefill is None:
                placement = self._strategy.placed(requirements, chosen)
            else:
                placement = self._strategy.placed_pair(requirements, prefill, chosen)
        except RequestError:
            raise
        except BaseException as error:
            raise plugin_failed(self._plugin, error) from error
        if placement is None or self._plugin.trusted:
            return placement  # type: ignore[no-any-return]
        return GuardedPlacement(self._plugin, placement)

    def prefix(self, requirements: Requirements, chosen: Candidate) -> PrefixFacts | None:
        """What ``chosen`` has of the prompt, as far as the strategy knows."""
        with plugin_errors(self._plugin):
            return self._strategy.prefix(requirements, chosen)  # type: ignore[no-any-return]

    def verdicts(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Mapping[str, Verdict]:
        """The strategy's verdict on each candidate, by replica."""
        with plugin_errors(self._plugin):
            verdicts = self._explained(requirements, candidates)
            return {each.replica: verdict for each, verdict in zip(candidates, verdicts, strict=True)}

    def scores(
        self, requirements: Requirements, candidates: Sequence[Candidate], chosen: Candidate
    ) -> tuple[float | None, tuple[tuple[str, float | None], ...]]:
        """The score of ``chosen``, and those of the first losers among ``candidates``; ``None`` where it has none."""
        losers = [each for each in candidates[: _MOST_LOSERS + 1] if each is not chosen][:_MOST_LOSERS]
        some = [chosen, *losers]
        try:
            if self._scores_alone:
                found = [self._strategy.score(requirements, some, each) for each in some]
            else:
                found = [verdict.score for verdict in self._explained(requirements, some)]
        except Exception:
            return None, ()  # a trace is no reason to fail a request
        return found[0], tuple([(each.replica, score) for each, score in zip(losers, found[1:])])  # noqa: B905

    # --- the rules of ``Strategy``

    def _checked_pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return self._one_of(candidates, self._strategy.pick(requirements, candidates))

    def _one_of(self, candidates: Sequence[Candidate], chosen: object) -> Candidate:
        for candidate in candidates:
            if candidate is chosen:
                return candidate
        if isinstance(chosen, Candidate):
            raise wrong_result(self._plugin, f"picked '{chosen.replica}', which is none of the given candidates")
        raise wrong_result(self._plugin, f"picked {of_type(chosen)} instead of a candidate")

    def _explained(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        verdicts: Sequence[Verdict] = self._strategy.explain(requirements, candidates)
        if len(verdicts) != len(candidates):
            raise wrong_result(self._plugin, f"explained {len(verdicts)} of {len(candidates)} candidates")
        return verdicts


NamedStrategies = Mapping[str, tuple[PluginId, Strategy]]


class StrategyTable:
    """The runner of each strategy. ``of_models``: strategies by model. ``of_rules``: by type.

    ``runners`` has each once; ``only``: the one of all requests, if there is only one.
    ``hands_over``: whether one may pick a replica for the prompt and another for the answer.
    """

    def __init__(
        self, default: tuple[PluginId, Strategy], of_models: NamedStrategies, of_rules: NamedStrategies
    ) -> None:
        self._default = StrategyRunner(*default)
        found = {id(default[1]): self._default}
        for each in (*of_models.values(), *of_rules.values()):  # one strategy may serve several models
            found.setdefault(id(each[1]), StrategyRunner(*each))
        self._of_models = {model: found[id(each[1])] for model, each in of_models.items()}
        self._of_rules = {type: found[id(each[1])] for type, each in of_rules.items()}
        self.runners = tuple(found.values())
        self.only = self._default if len(found) == 1 else None
        self.hands_over = any(runner.hands_over for runner in self.runners)

    def runner(self, model: str, requirements: Requirements) -> StrategyRunner:
        """The one that picks among the replicas of ``model``: that of the request's rule comes first.

        A reload may have removed the strategy of a rule that an earlier request has.
        """
        effects = requirements.rule_effects
        if effects is not None and effects.strategy and (of_rule := self._of_rules.get(effects.strategy)) is not None:
            return of_rule
        return self._of_models.get(model, self._default)

    def on_view(self, view: object, settings: ReschedulingSettings) -> None:
        """Hand the figures of all engines to the strategies."""
        for runner in self.runners:
            runner.tell("on_view", view, settings)

    def memories(self) -> dict[str, bytes]:
        """What strategies should know after a reload or a restart, by their types."""
        return {runner.type: memory for runner in self.runners if (memory := runner.memory("remembered"))}

    def recall(self, memories: Mapping[str, bytes]) -> None:
        """Give the strategies what strategies of their types knew."""
        for runner in self.runners:
            if runner.type in memories:
                runner.recall(memories[runner.type])

    def learned(self) -> Mapping[str, Mapping[str, float]]:
        """What the strategies have learned of each backend."""
        learned: dict[str, dict[str, float]] = {}
        for runner in reversed(self.runners):
            for backend, figures in runner.learned().items():
                learned.setdefault(backend, {}).update(figures)
        return learned

    def news(self) -> dict[str, bytes]:
        """What strategies have learned since the last call, by their types, for other workers."""
        return {runner.type: news for runner in self.runners if (news := runner.memory("news"))}

    def hear(self, news: Mapping[str, bytes]) -> None:
        """Tell the strategies what they have learned in another worker."""
        for runner in self.runners:
            if runner.type in news:
                runner.tell("hear", news[runner.type])
