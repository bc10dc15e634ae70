"""Checks the results of other distributions' plugins on the request path, so that errors name the plugin at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.domain.explanation import Verdict
from enginehouse.domain.inference_request import InferenceRequest
from enginehouse.domain.instance import ClusterView
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.scorers import WeightedScorer
from enginehouse.interfaces.strategies import Placement, Strategy
from enginehouse.telemetry.plugin_failures import wrong_result

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
        return wrong_result(self._plugin, f"set '{field}' to {_of_type(value)} instead of {wanted}")


class GuardedFilter(Filter):
    """Runs another filter and checks that it returns some of the candidates."""

    def __init__(self, plugin: PluginId, filter: Filter) -> None:
        self._plugin = plugin
        self._filter = filter
        self._keep = filter.keep

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        kept = self._keep(requirements, candidates)
        if kept is candidates:
            return kept
        if not isinstance(kept, (list, tuple)):
            raise wrong_result(self._plugin, f"returned {_of_type(kept)} instead of a list of candidates")
        if len(kept) > len(candidates) or not set(map(id, candidates)).issuperset(map(id, kept)):
            raise wrong_result(self._plugin, "returned something else than candidates that it was given")
        return kept

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        reason = self._filter.why(requirements, candidate)
        if not isinstance(reason, str):
            raise wrong_result(self._plugin, f"returned {_of_type(reason)} from why instead of a str")
        return reason

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        names = self._filter.missing(requirements, candidate)
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise wrong_result(self._plugin, f"returned {_of_type(names)} from missing instead of a list of names")
        return names


class GuardedStrategy(Strategy):
    """Runs another strategy and checks that it picks one of the candidates."""

    def __init__(self, plugin: PluginId, strategy: Strategy) -> None:
        self._plugin = plugin
        self._strategy = strategy

    def use(self, scorers: Sequence[WeightedScorer]) -> None:
        self._strategy.use(scorers)

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        self._strategy.on_view(view, settings)

    def learned(self) -> Mapping[str, Mapping[str, float]]:
        learned = self._strategy.learned()
        try:
            return msgspec.convert(learned, dict[str, dict[str, float]])
        except msgspec.ValidationError:
            raise wrong_result(self._plugin, f"returned {_of_type(learned)} from learned instead of figures") from None

    def news(self) -> bytes:
        news = self._strategy.news()
        if not isinstance(news, bytes):
            raise wrong_result(self._plugin, f"returned {_of_type(news)} from news instead of bytes")
        return news

    def hear(self, news: bytes) -> None:
        self._strategy.hear(news)

    def remembered(self) -> bytes:
        remembered = self._strategy.remembered()
        if not isinstance(remembered, bytes):
            raise wrong_result(self._plugin, f"returned {_of_type(remembered)} from remembered instead of bytes")
        return remembered

    def recall(self, remembered: bytes) -> None:
        self._strategy.recall(remembered)

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement | None:
        placement = self._strategy.placed(requirements, chosen)
        if placement is not None and not isinstance(placement, Placement):
            raise wrong_result(self._plugin, f"returned {_of_type(placement)} from placed instead of a Placement")
        return placement

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        chosen = self._strategy.pick(requirements, candidates)
        for candidate in candidates:
            if candidate is chosen:
                return chosen
        if isinstance(chosen, Candidate):
            raise wrong_result(self._plugin, f"picked '{chosen.replica}', which is none of the given candidates")
        raise wrong_result(self._plugin, f"picked {_of_type(chosen)} instead of a candidate")

    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        chosen = self._strategy.pick_decode(requirements, candidates, prefill)
        if chosen is None or any(candidate is chosen for candidate in candidates):
            return chosen
        raise wrong_result(self._plugin, f"returned {_of_type(chosen)} from pick_decode instead of a candidate")

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        verdicts = self._strategy.explain(requirements, candidates)
        if not isinstance(verdicts, (list, tuple)) or not all(isinstance(each, Verdict) for each in verdicts):
            raise wrong_result(
                self._plugin, f"returned {_of_type(verdicts)} from explain instead of a list of Verdicts"
            )
        if len(verdicts) != len(candidates):
            raise wrong_result(self._plugin, f"explained {len(verdicts)} of {len(candidates)} candidates")
        return verdicts

    def score(self, requirements: Requirements, candidates: Sequence[Candidate], chosen: Candidate) -> float | None:
        score = self._strategy.score(requirements, candidates, chosen)
        if score is not None and not isinstance(score, (int, float)):
            raise wrong_result(self._plugin, f"returned {_of_type(score)} from score instead of a number")
        return float(score) if score is not None else None


def _of_type(value: object) -> str:
    """The type of a wrong value. Its content may be the client's, so errors do not show it."""
    return "None" if value is None else f"an object of type {type(value).__name__}"
