"""The number of replicas that is wanted for each model, and how it becomes part of a configuration."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from enginehouse.config.schema import Config, ModelSettings, ReplicaRange, SizedRange


def ranges(config: Config) -> Mapping[str, ReplicaRange]:
    """The models with a range of replicas."""
    return {name: each.replicas for name, each in config.models.items() if isinstance(each.replicas, ReplicaRange)}


def least(model: ModelSettings, range: ReplicaRange) -> int:
    """The fewest replicas of ``model``: one at least if it is pinned."""
    return max(range.min, 1 if model.pin else 0)


def sized(config: Config, wanted: Mapping[str, int]) -> Config:
    """``config`` with the backends for the replicas that are ``wanted``; for models that are not in it, the fewest."""
    models = {
        name: replace(
            config.models[name],
            replicas=SizedRange(min=each.min, max=each.max, size=_within(wanted.get(name, each.min), each)),
        )
        for name, each in ranges(config).items()
    }
    return replace(config, models={**config.models, **models}) if models else config


def _within(size: int, range: ReplicaRange) -> int:
    return min(max(size, range.min), range.max)
