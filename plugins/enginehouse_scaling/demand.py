"""The load of models whose replicas may become more or fewer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginehouse import Candidate, Health, ReplicaState
from enginehouse.backends import ModelLoad, ModelSettings, ReplicaRange, ScaleView
from enginehouse.services import ServiceGateway

_RUNS = (ReplicaState.PLACING, ReplicaState.STARTING, ReplicaState.READY)


class _LiveCounts(NamedTuple):
    """The live requests by model: those at engines, those that wait, and the longest wait in seconds."""

    serving: Counter[str]
    waiting: Counter[str]
    longest: dict[str, float]


class Demand:
    """Reads the load from the gateway. Remembers since when a replica was spare."""

    def __init__(self, gateway: ServiceGateway) -> None:
        self._gateway = gateway
        self._spare_since: dict[str, float] = {}

    def view(self) -> ScaleView:
        """The load of every model with a range of replicas, now."""
        now, models = self._gateway.clock.now(), self._gateway.table("models")
        found = ranges(models)
        self._spare_since = {name: since for name, since in self._spare_since.items() if name in found}
        requests = self._requests(now) if found else _LiveCounts(Counter(), Counter(), {})
        loads = (self._load(name, models[name], each, requests, now) for name, each in found.items())
        return ScaleView(now=now, models=tuple(loads))

    def replicas(self, model: str, *, launched: bool) -> Sequence[Candidate]:
        """The replicas of ``model`` that run, start or wait for a place; those elsewhere that are not broken."""
        offered = [each for each in self._gateway.models.replicas(model) if not each.draining]
        if launched:
            return [each for each in offered if each.state in _RUNS]
        return [each for each in offered if each.health is not Health.UNHEALTHY]

    def began_anew(self, name: str) -> None:
        """Note that the number of replicas has changed: whether one is spare is measured from now on."""
        self._spare_since.pop(name, None)

    def _load(
        self, name: str, model: ModelSettings, range: ReplicaRange, requests: _LiveCounts, now: float
    ) -> ModelLoad:
        replicas = self.replicas(name, launched=model.launches)
        ready = [each for each in replicas if each.state is ReplicaState.READY]
        inside = sum(each.load.engine_waiting for each in ready)
        waiting = requests.waiting[name] + inside
        slots = max((each.load.slots for each in replicas), default=0)
        needed = _needed(requests.serving[name] + requests.waiting[name], slots, len(replicas))
        return ModelLoad(
            model=name,
            replicas=len(replicas),
            ready=len(ready),
            least=least(model, range),
            most=range.max,
            slots=slots,
            serving=requests.serving[name],
            waiting=waiting,
            expected_wait_s=self._expected_wait(ready, waiting, inside, requests.longest.get(name, 0.0)),
            spare_s=self._spare_s(name, spare=needed < len(replicas), now=now),
            scale_up_wait=model.scale_up_wait,
            scale_down_idle=model.scale_down_idle,
        )

    def _expected_wait(self, ready: Sequence[Candidate], waiting: int, inside: int, longest: float) -> float:
        """By the pace at which waiting requests were granted; at least as long as one has waited already.

        Requests that wait inside an engine wait as long as its answers take to begin.
        """
        if not waiting and (not ready or any(each.load.free != 0 for each in ready)):
            return 0.0
        begins = max((each.load.avg_latency_ms / 1000 for each in ready), default=0.0) if inside else 0.0
        granted = self._gateway.models.expected_wait([each.backend for each in ready], waiting + 1)
        return max(granted, longest, begins)

    def _spare_s(self, name: str, *, spare: bool, now: float) -> float:
        if not spare:
            self._spare_since.pop(name, None)
            return 0.0
        return now - self._spare_since.setdefault(name, now)

    def _requests(self, now: float) -> _LiveCounts:
        found = _LiveCounts(Counter(), Counter(), {})
        for request in self._gateway.requests:
            model = request.model
            if model is None:
                continue
            if request.waits:
                found.waiting[model] += 1
                found.longest[model] = max(found.longest.get(model, 0.0), now - request.began)
            else:
                found.serving[model] += 1
        return found


def _needed(requests: int, slots: int, replicas: int) -> int:
    """The replicas that so many requests need. Without a known limit, each replica serves one request at least."""
    return math.ceil(requests / slots) if slots else min(requests, replicas)


def ranges(models: Mapping[str, ModelSettings]) -> Mapping[str, ReplicaRange]:
    """Those of the configured ``models`` that have a range of replicas."""
    return {name: each.replicas for name, each in models.items() if isinstance(each.replicas, ReplicaRange)}


def least(model: ModelSettings, range: ReplicaRange) -> int:
    """The fewest replicas of ``model``: one at least if it is pinned."""
    return max(range.min, 1 if model.pin else 0)
