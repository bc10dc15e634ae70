"""Runs the configured strategy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Final

from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.domain.errors import PluginFailed, RequestError
from enginehouse.domain.explanation import Verdict
from enginehouse.domain.foreign import describe
from enginehouse.domain.instance import ClusterView
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.strategies import Placement, Strategy
from enginehouse.routing.guarded_placement import GuardedPlacement
from enginehouse.routing.guards import GuardedStrategy
from enginehouse.telemetry.plugin_failures import plugin_errors, plugin_failed
from enginehouse.telemetry.plugin_times import SampledCall

_log = logging.getLogger(__name__)

_MOST_LOSERS: Final = 10
"""The most losers that a trace names."""


def must_wait(chosen: Candidate, candidates: Sequence[Candidate], waited_for: Container[str] = ()) -> bool:
    """Whether a request that is picked ``chosen`` of ``candidates`` waits for its model.

    It does if the slots there are taken, or if others wait for the model, whose turn comes first. The only candidate
    gets it at once: its host orders what waits there.
    """
    load = chosen.load
    if not load.slots or len(candidates) < 2:
        return False
    return load.pending >= load.slots or chosen.model in waited_for


class StrategyRunner:
    """Runs the strategy. Its exceptions become ``PluginFailed``, except for a ``RequestError``.

    ``hands_over``: it may pick one candidate for the prompt and another one for the answer. ``binds_late``: requests
    wait for their model, not for a replica.
    """

    def __init__(self, plugin: PluginId, strategy: Strategy) -> None:
        self._plugin = plugin
        self._strategy = strategy if plugin.trusted else GuardedStrategy(plugin, strategy)
        self.hands_over = type(strategy).pick_decode is not Strategy.pick_decode
        self.binds_late = strategy.binds_late and not self.hands_over
        self._follows = type(strategy).placed is not Strategy.placed
        self._scores_alone = type(strategy).score is not Strategy.score
        self.sampled = SampledCall(plugin, self._strategy.pick)

    @property
    def type(self) -> str:
        """The strategy's type."""
        return self._plugin.type

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        """Hand over the figures of all engines. A failure is logged."""
        with suppress(RequestError), plugin_errors(self._plugin):
            self._strategy.on_view(view, settings)

    def learned(self) -> Mapping[str, Mapping[str, float]]:
        """What the strategy has learned of each backend. A failure is logged."""
        with suppress(RequestError), plugin_errors(self._plugin):
            return self._strategy.learned()
        return {}

    def news(self) -> bytes:
        """What the strategy has learned since the last call, for other workers. A failure is logged."""
        with suppress(RequestError), plugin_errors(self._plugin):
            return self._strategy.news()
        return b""

    def hear(self, news: bytes) -> None:
        """Tell the strategy what it has learned in another worker. A failure is logged."""
        with suppress(RequestError), plugin_errors(self._plugin):
            self._strategy.hear(news)

    def remembered(self) -> bytes:
        """What another instance of the strategy should know. A failure is logged."""
        with suppress(RequestError), plugin_errors(self._plugin):
            return self._strategy.remembered()
        return b""

    def recall(self, remembered: bytes) -> None:
        """Give the strategy what another instance of it knew. A failure is logged."""
        try:
            self._strategy.recall(remembered)
        except Exception as error:
            _log.warning("The %s learns anew, because it cannot use what was kept: %s", self._plugin, describe(error))

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
            return self._strategy.pick_decode(requirements, candidates, prefill)

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement | None:
        """Tell the strategy that a request goes to ``chosen``; what follows it there, if anything does."""
        if not self._follows:
            return None
        try:
            placement = self._strategy.placed(requirements, chosen)
        except RequestError:
            raise
        except BaseException as error:
            raise plugin_failed(self._plugin, error) from error
        if placement is None or self._plugin.trusted:
            return placement
        return GuardedPlacement(self._plugin, placement)

    def verdicts(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Mapping[str, Verdict]:
        """The strategy's verdict on each candidate, by replica."""
        with plugin_errors(self._plugin):
            verdicts = self._strategy.explain(requirements, candidates)
            return {each.replica: verdict for each, verdict in zip(candidates, verdicts, strict=True)}

    def rehearse(
        self, requirements: Requirements, candidates: Sequence[Candidate], can_hand_over: Callable[[Candidate], bool]
    ) -> tuple[Candidate, Candidate | None]:
        """The candidate that ``pick`` would return now, and that of ``pick_decode`` if another one would answer.

        A copy picks, so that a rotation or a random source keeps its state.
        """
        with plugin_errors(self._plugin):
            copy = self._copy()
            first = copy.pick(requirements, candidates)
            if not self.hands_over or not can_hand_over(first):
                return first, None
            decode = copy.pick_decode(requirements, candidates, first)
            return first, decode if decode is not None and decode is not first and can_hand_over(decode) else None

    def scores(
        self, requirements: Requirements, candidates: Sequence[Candidate], chosen: Candidate
    ) -> tuple[float | None, tuple[tuple[str, float | None], ...]]:
        """The score of ``chosen``, and those of the first losers among ``candidates``; ``None`` where it has none."""
        losers = [each for each in candidates[: _MOST_LOSERS + 1] if each is not chosen][:_MOST_LOSERS]
        some, strategy = [chosen, *losers], self._strategy
        try:
            if self._scores_alone:
                found = [strategy.score(requirements, some, each) for each in some]
            else:
                found = [verdict.score for verdict in strategy.explain(requirements, some)]
        except Exception:
            return None, ()  # a trace is no reason to fail a request
        return found[0], tuple([(each.replica, score) for each, score in zip(losers, found[1:])])  # noqa: B905

    def _copy(self) -> Strategy:
        try:
            return deepcopy(self._strategy)
        except Exception as error:
            text = f"The {self._plugin} cannot be explained: it cannot be copied, give it a __deepcopy__"
            raise PluginFailed(text, details=self._plugin.details) from error
