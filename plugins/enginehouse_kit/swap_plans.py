"""The plans of swappers, in the names of models."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse import Swapper
from enginehouse.errors import NotFound
from enginehouse.settings import did_you_mean
from enginehouse.tickets import HostFacts, SwapPlan


def explain_swap(swapper: Swapper, host: HostFacts, target: str, running: Sequence[str]) -> SwapPlan:
    """Plan the swap that loads the model ``target`` beside the models ``running``, the least recently used first.

    A model stands for its first replica. Models of other hosts are ignored. Raises ``NotFound`` for a model that is not
    launched, and ``LoadFailed`` if the target cannot run.
    """
    first: dict[str, str] = {}
    for hosted in host.replicas.values():
        first.setdefault(hosted.model, hosted.replica)
    for model in running:
        if model not in host.elsewhere:
            _expect(model, first)
    _expect(target, first)
    plan = swapper.explain(first[target], [first[model] for model in dict.fromkeys(running) if model in first])
    names = {replica: hosted.model for replica, hosted in host.replicas.items()}
    return msgspec.structs.replace(
        plan,
        target=target,
        evict=[names[replica] for replica in plan.evict],
        set=sorted(names[replica] for replica in plan.set),
    )


def _expect(model: str, first: dict[str, str]) -> None:
    if model not in first:
        remedy = did_you_mean(model, list(first)) or "it must be one of [models] that has an engine to launch"
        raise NotFound(f"There is no model '{model}' to launch; {remedy}", details={"model": model})
