"""A scorer whose figures a strategy need not check."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.domain.errors import RequestError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.scorers import Scorer
from enginehouse.telemetry.plugin_failures import plugin_failed, wrong_result
from enginehouse.telemetry.plugin_times import SampledCall


class GuardedScorer(Scorer):
    """Runs another scorer and checks its result.

    Figures are clamped to 0..100. A wrong number of figures, a figure that is NaN or no number, and any exception but a
    ``RequestError`` become ``PluginFailed``, which names the scorer, its type and its plugin.
    """

    def __init__(self, plugin: PluginId, scorer: Scorer) -> None:
        self._plugin = plugin
        self.sampled = SampledCall(plugin, scorer.score)

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        try:
            figures = self.sampled.call(requirements, candidates)
            count = len(figures)
            clamped = [0 if figure < 0 else 100 if figure > 100 else figure for figure in figures]
            total = sum(clamped)
        except RequestError:
            raise
        except BaseException as error:
            raise plugin_failed(self._plugin, error) from error
        if count != len(candidates):
            raise wrong_result(self._plugin, f"returned {count} figures for {len(candidates)} candidates")
        if total != total:  # clamped figures cannot be infinite, so one of them is NaN
            raise wrong_result(self._plugin, "returned NaN")
        return clamped
