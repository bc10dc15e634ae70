"""Checks the results of other distributions' plugins on the request path, so that errors name the plugin at fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from enginehouse.domain.errors import RequestError
from enginehouse.domain.explanation import PrefixFacts
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import InferenceRequest, Requirements
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.scorers import Scorer
from enginehouse.interfaces.strategies import Placement
from enginehouse.telemetry.checked_plugin import CheckedPlugin, methods_of
from enginehouse.telemetry.plugin_failures import log_plugin_failure, plugin_failed, wrong_result
from enginehouse.telemetry.plugin_times import SampledCall

_EVENTS = ("queued", "granted", "first_byte", "counted", "ended")
_OF_FILTERS = methods_of(Filter)
_FLAGS = ("stream", "needs_vision", "needs_tools", "needs_json_mode")


class GuardedExtractor(Extractor):
    """Runs another extractor and checks the types of the requirements."""

    def __init__(self, plugin: PluginId, extractor: Extractor) -> None:
        self._plugin = plugin
        self._extract = extractor.extract

    def extract(self, request: InferenceRequest, requirements: Requirements) -> None:
        self._extract(request, requirements)
        tokens = requirements.estimated_tokens
        if type(tokens) is not int or tokens < 0:
            raise self._wrong("estimated_tokens", tokens, "a whole number from 0")
        if type(requirements.extra) is not dict:
            raise self._wrong("extra", requirements.extra, "a dict")
        for name in ("model", "path"):
            if type(value := getattr(requirements, name)) is not str:
                raise self._wrong(name, value, "a str")
        for name in _FLAGS:
            if type(value := getattr(requirements, name)) is not bool:
                raise self._wrong(name, value, "a bool")

    def _wrong(self, field: str, value: object, wanted: str) -> Exception:
        return wrong_result(self._plugin, f"set '{field}' to {of_type(value)} instead of {wanted}")


class GuardedFilter(CheckedPlugin):
    """Another filter. Its answers are checked, and that it returns some of the candidates."""

    def __init__(self, plugin: PluginId, filter: Filter) -> None:
        super().__init__(plugin, filter, _OF_FILTERS)
        self._keep = filter.keep

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        kept = self._keep(requirements, candidates)
        if kept is candidates:
            return kept
        if not isinstance(kept, (list, tuple)):
            raise wrong_result(self._plugin, f"returned {of_type(kept)} instead of a list of candidates")
        if len(kept) > len(candidates) or not set(map(id, candidates)).issuperset(map(id, kept)):
            raise wrong_result(self._plugin, "returned something else than candidates that it was given")
        return kept

    def joined(self, following: Sequence[Filter]) -> None:
        """Only bundled filters run at once."""


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


class GuardedPlacement(Placement):
    """Logs the exceptions of a placement and drops them: the request goes on."""

    def __init__(self, plugin: PluginId, placement: Placement) -> None:
        self.prefix = placement.prefix if isinstance(placement.prefix, PrefixFacts) else None
        for name in _EVENTS:
            setattr(self, name, partial(_follow, plugin, getattr(placement, name)))


def _follow(plugin: PluginId, method: Callable[..., None], *facts: object) -> None:
    try:
        method(*facts)
    except Exception as error:
        log_plugin_failure(plugin, "failed to follow a request", error)


def of_type(value: object) -> str:
    """The type of a wrong value. Its content may be the client's, so errors do not show it."""
    return "None" if value is None else f"an object of type {type(value).__name__}"
