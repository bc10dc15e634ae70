"""The strategies that a gateway uses: the default, those of single models, and those that rules name."""

from __future__ import annotations

from collections.abc import Mapping

from enginehouse.config.rescheduling_settings import ReschedulingSettings
from enginehouse.domain.instance import ClusterView
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.strategies import Strategy
from enginehouse.routing.strategy_runner import StrategyRunner

NamedStrategies = Mapping[str, tuple[PluginId, Strategy]]


class StrategyTable:
    """The runner of each strategy. ``of_models``: strategies by model. ``of_rules``: by type.

    ``runners`` has each once. ``hands_over``: whether one may pick a replica for the prompt and another for the answer.
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
        self.hands_over = any(runner.hands_over for runner in self.runners)

    def runner(self, model: str, requirements: Requirements) -> StrategyRunner:
        """The one that picks among the replicas of ``model``: that of the request's rule comes first.

        A reload may have removed the strategy of a rule that an earlier request has.
        """
        effects = requirements.rule_effects
        if effects is not None and effects.strategy and (of_rule := self._of_rules.get(effects.strategy)) is not None:
            return of_rule
        return self._of_models.get(model, self._default)

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        """Hand the figures of all engines to the strategies."""
        for runner in self.runners:
            runner.on_view(view, settings)

    def memories(self) -> dict[str, bytes]:
        """What strategies should know after a reload or a restart, by their types."""
        runners = {runner.type: runner for runner in [*self._of_models.values(), self._default]}
        found = {type: runner.remembered() for type, runner in runners.items()}
        return {type: memory for type, memory in found.items() if memory}

    def recall(self, memories: Mapping[str, bytes]) -> None:
        """Give the strategies what strategies of their types knew."""
        for runner in dict.fromkeys([*self._of_models.values(), self._default]):
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
        found = {runner.type: runner.news() for runner in self.runners}
        return {type: news for type, news in found.items() if news}

    def hear(self, news: Mapping[str, bytes]) -> None:
        """Tell the strategies what they have learned in another worker."""
        for runner in self.runners:
            if runner.type in news:
                runner.hear(news[runner.type])
