"""How many replicas a service wants of models with ``replicas = { min, max }``, and how a configuration gets them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from enginehouse.config.schema import Config, ReplicaRange, SizedRange


class ModelSizes:
    """The wanted number of replicas of each model; the fewest where nobody wants another."""

    def __init__(self) -> None:
        self.wanted: Mapping[str, int] = {}

    def sized(self, config: Config) -> Config:
        """``config`` with as many backends as are wanted."""
        models = {
            name: replace(config.models[name], replicas=SizedRange(min=each.min, max=each.max, size=size))
            for name, each in _ranges(config).items()
            for size in [min(max(self.wanted.get(name, each.min), each.min), each.max)]
        }
        return replace(config, models={**config.models, **models}) if models else config

    def recall(self, config: Config, running: Collection[str]) -> bool:
        """Want as many as an earlier gateway has left ``running``, by the names of their backends; whether any."""
        left = {
            name: max(numbers)
            for name, each in _ranges(config).items()
            for backends in [enumerate(config.models[name].possible_backends(name), 1)]
            if (numbers := [number for number, backend in backends if backend in running]) and max(numbers) > each.min
        }
        self.wanted = {**self.wanted, **left}
        return bool(left)


def _ranges(config: Config) -> Mapping[str, ReplicaRange]:
    return {name: each.replicas for name, each in config.models.items() if isinstance(each.replicas, ReplicaRange)}
