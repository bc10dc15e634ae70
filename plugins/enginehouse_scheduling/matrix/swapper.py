"""``matrix``: expressions say which models may run together, and the cheapest eviction wins."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginehouse import ConfigError, Swapper
from enginehouse.errors import LoadFailed
from enginehouse.settings import MatrixSettings, did_you_mean
from enginehouse.tickets import HostFacts, SwapPlan
from enginehouse_scheduling.matrix.expressions import Name, Source, read_sets
from enginehouse_scheduling.matrix.solve import Node, alone, best, compile_sets
from enginehouse_scheduling.model_names import check_model, models_of

_log = logging.getLogger(__name__)

_KEY = "scheduling.matrix"


class _Choice(NamedTuple):
    """A set, the running replicas that it excludes, and the cost of their eviction."""

    set_name: str | None
    evict: list[str]
    cost: int


class Matrix(Swapper):
    """Chooses the set that contains the target and evicts at the lowest cost; never a pinned replica.

    Any part of a set may run. Among sets of one cost the first wins; within a set the fewest evictions, then the first
    alternative. A target that is in no set runs alone.
    """

    class Config(MatrixSettings, frozen=True):
        """``vars``: short names of models. ``costs`` of evictions, 1 by default. ``sets``: expressions, best first."""

    def __init__(self, config: Config) -> None:
        if not config.sets:
            raise ConfigError("there is no set", key=f"{_KEY}.sets", remedy='add one, such as main = "(a | b) & c"')
        self._config = config
        self._read = read_sets(config.sets, f"{_KEY}.sets")
        self._host = HostFacts(name="")
        self._sets: Mapping[str, Node] = {}
        self._bits: Mapping[str, int] = {}
        self._costs: Mapping[str, int] = {}

    def prepare(self, host: HostFacts) -> None:
        """Raises ``ConfigError`` for a name that is neither a model nor one of ``vars``."""
        names = _Names(self._config.vars, host, f"{_KEY}.vars")
        costs = names.costs(self._config.costs, f"{_KEY}.costs")
        self._host = host
        self._sets = compile_sets(self._read, names.bit_at)
        self._bits = {name: names.bit(replica.model) for name, replica in host.replicas.items()}
        self._costs = {name: costs.get(replica.model, 1) for name, replica in host.replicas.items()}

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The running replicas that the chosen set excludes, in their order. ``LoadFailed`` if one is pinned.

        Those that sleep and have freed memory, as measured, do not count.
        """
        running = self._awake(running)
        return [] if target in running else self._choose(target, running).evict

    def on_swap_start(self, target: str, running: Sequence[str]) -> None:
        if _log.isEnabledFor(logging.INFO) and (plan := self.explain(target, running)).evict:
            _log.info("Swap of %s: set %s, cost %s", target, plan.set_name or "none", plan.cost)

    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        """The eviction with the chosen set and its cost."""
        running = self._awake(running)
        nothing = _Choice(self._first_with(running), [], 0) if target in running else None
        name, evict, cost = nothing or self._choose(target, running)
        stays = [each for each in running if each != target and each not in evict]
        return SwapPlan(target=target, evict=evict, set=[*stays, target], set_name=name, cost=cost)

    def _awake(self, running: Sequence[str]) -> Sequence[str]:
        return [each for each in running if each not in self._host.asleep] if self._host.asleep else running

    def _choose(self, target: str, running: Sequence[str]) -> _Choice:
        wanted, worths = self._bits[target], self._worths(target, running)
        pinned = [each for each in running if self._host.replicas[each].pin]
        sets: list[tuple[str | None, Node]] = [each for each in self._sets.items() if each[1].support & wanted]
        chosen: _Choice | None = None
        for name, node in sets or [(None, alone(wanted))]:
            if chosen and self._cost_without(node.support, running) >= chosen.cost:
                continue
            _, kept = best(node, sum(worths), worths)
            evict = [each for each in running if not self._bits[each] & kept]
            cost = self._cost_without(kept, running)
            if not any(each in evict for each in pinned) and (chosen is None or cost < chosen.cost):
                chosen = _Choice(name, evict, cost)
        if chosen is None:
            raise LoadFailed(self._refusal(target, pinned))
        return chosen

    def _cost_without(self, models: int, running: Sequence[str]) -> int:
        """The cost of evicting all but ``models``."""
        return sum(self._costs[each] for each in running if not self._bits[each] & models)

    def _worths(self, target: str, running: Sequence[str]) -> dict[int, int]:
        """The worth of keeping each model: the target above all, then pinned models, then by cost, then by number."""
        above_number = len(running) + 1
        above_cost = 1 + sum(self._costs[each] * above_number + 1 for each in running)
        worths: dict[int, int] = {}
        for each in running:
            worth = self._costs[each] * above_number + 1 + above_cost * self._host.replicas[each].pin
            worths[self._bits[each]] = worths.get(self._bits[each], 0) + worth
        worths[self._bits[target]] = above_cost * (above_number + 1)
        return worths

    def _first_with(self, running: Sequence[str]) -> str | None:
        """The first set that allows all of ``running`` together."""
        worths = {self._bits[each]: 1 for each in running}
        everything = sum(worths)
        allow = (name for name, node in self._sets.items() if best(node, everything, worths)[1] == everything)
        return next(allow, None)

    def _refusal(self, target: str, pinned: Sequence[str]) -> str:
        model = self._host.replicas[target].model
        beside = ", ".join(f"'{self._host.replicas[each].model}'" for each in pinned)
        return f"Model '{model}' cannot run beside {beside}, pinned: no set allows it (change {_KEY}.sets, or unpin)"


class _Names:
    """The short names in ``vars``, at the configuration key ``key``, and the names of models. Short names win.

    Raises ``ConfigError`` for a short name of an unknown model.
    """

    def __init__(self, vars: Mapping[str, str], host: HostFacts, key: str) -> None:
        for name, model in vars.items():
            check_model(model, host, f"{key}.{name}")
        models = models_of(host)
        self._models = {**{model: model for model in models}, **vars}
        self._bits = {model: 1 << number for number, model in enumerate(models)}

    def bit(self, model: str) -> int:
        """The bit of a model."""
        return self._bits[model]

    def bit_at(self, name: Name, source: Source) -> int:
        """The bit of the model that a name in an expression stands for. Raises ``ConfigError`` for an unknown name."""
        if name.text not in self._models:
            raise source.error(f"unknown model or var '{name.text}'", name.span, self._remedy(name.text))
        return self._bits[self._models[name.text]]

    def costs(self, costs: Mapping[str, int], key: str) -> dict[str, int]:
        """``costs``, at the configuration key ``key``, by model. Raises ``ConfigError`` for an unknown name."""
        by_model: dict[str, int] = {}
        for name, cost in costs.items():
            where = f"{key}.{name}"
            if name not in self._models:
                raise ConfigError(f"unknown model or var '{name}'", key=where, remedy=self._remedy(name))
            model = self._models[name]
            if model in by_model:
                raise ConfigError(f"model '{model}' has a cost already", key=where, remedy="keep one of them")
            by_model[model] = cost
        return by_model

    def _remedy(self, name: str) -> str:
        return did_you_mean(name, list(self._models)) or f"known: {', '.join(self._models)}"
