"""``group``: eviction by groups of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from enginehouse import ConfigError, Swapper
from enginehouse.settings import GroupSettings
from enginehouse.tickets import HostedReplica, HostFacts, SwapPlan
from enginehouse_scheduling.model_names import check_model


class _Place(NamedTuple):
    """The group of a model. ``name`` is ``None`` for the group of all models that no group lists."""

    name: str | None
    rules: GroupSettings


_REST = _Place(None, GroupSettings(members=[]))


class Group(Swapper):
    """Evicts by groups, and never a pinned replica. Replicas of one model do not evict each other."""

    class Config(msgspec.Struct, frozen=True):
        """``groups``: the groups by name, from ``[scheduling.groups]``."""

        groups: dict[str, GroupSettings] = {}

    def __init__(self, config: Config) -> None:
        self._groups = config.groups
        self._places: dict[str, _Place] = {}
        self._host = HostFacts(name="")

    def prepare(self, host: HostFacts) -> None:
        """Raises ``ConfigError`` for an unknown model, and for a model that is listed twice."""
        self._host = host
        self._places = {}
        for name, rules in self._groups.items():
            key = f"scheduling.groups.{name}.members"
            for model in rules.members:
                check_model(model, host, key)
                if model in self._places:
                    problem = f"'{model}' is a member of '{self._places[model].name}' already"
                    raise ConfigError(problem, key=key, remedy="list a model once, in one group")
                self._places[model] = _Place(name, rules)

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """The running replicas that the groups exclude beside ``target``, in their order.

        Those that sleep and have freed memory, as measured, may stay.
        """
        replicas, asleep = self._host.replicas, self._host.asleep
        wanted = replicas[target]
        return [each for each in running if each not in asleep and self._must_go(replicas[each], wanted)]

    def dispensable(self, target: str, running: Sequence[str]) -> Sequence[str]:
        """All but the members of other, persistent groups."""
        replicas = self._host.replicas
        here = self._place(replicas[target].model).name
        places = {each: self._place(replicas[each].model) for each in running}
        return [each for each, place in places.items() if place.name == here or not place.rules.persistent]

    def explain(self, target: str, running: Sequence[str]) -> SwapPlan:
        """The eviction. ``set_name`` is the target's group, if a group lists it."""
        place = self._place(self._host.replicas[target].model)
        return msgspec.structs.replace(super().explain(target, running), set_name=place.name)

    def _must_go(self, runs: HostedReplica, wanted: HostedReplica) -> bool:
        if runs.pin or wanted.pin or runs.model == wanted.model:  # the target itself, too
            return False
        here, there = self._place(wanted.model), self._place(runs.model)
        if here.name == there.name:
            return here.rules.swap
        return here.rules.exclusive and not there.rules.persistent

    def _place(self, model: str) -> _Place:
        return self._places.get(model, _REST)
