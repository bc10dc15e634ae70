"""Reads the load of models, asks the scaler regularly, and has the gateway carry its decisions out."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from enginehouse import Candidate, EnginehouseError, Health, ReplicaState, Service
from enginehouse.backends import ModelSettings, ReplicaRange, SizedRange
from enginehouse.services import Measured, MetricInfo, ServiceGateway
from enginehouse_kit.scalers import ModelLoad, ScaleView, WantedReplicas
from enginehouse_scaling.decide import ScaleStatus, decide, make_scaler

_RUNS = (ReplicaState.PLACING, ReplicaState.STARTING, ReplicaState.READY)
_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_NOT_YET = "not decided yet"
_LEFT = "that many ran when the gateway started"
WANTED_REPLICAS = MetricInfo(
    "gauge",
    "enginehouse_wanted_replicas",
    "Replicas that the scaler wants of a model with `replicas = { min, max }`, for autoscalers too.",
    ("model",),
)


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


class Scaling(Service):
    """Keeps the number of replicas that each model with a range shall have.

    A replica more is a backend more, which is loaded in its turn; a replica less drains, and its streams move. The
    backend of a model without replicas stays, stopped, so that a request can start it. Models that the gateway does not
    launch only show the figure: somebody else starts their engines.
    """

    table = "scheduling"
    metrics = (WANTED_REPLICAS,)

    def __init__(self) -> None:
        self._decided: dict[str, WantedReplicas] = {}
        self._gateway: ServiceGateway
        self._demand: Demand
        self._made_for: object = None

    def prepare(self, gateway: ServiceGateway) -> None:
        self._gateway, self._demand = gateway, Demand(gateway)
        self._use_scaler()

    def start(self, gateway: ServiceGateway) -> None:
        from enginehouse_scaling.pages import scale_routes  # takes longer to import than a short command runs

        for name, each in self._ranges().items():
            fewest, left = self._least(name, each), each.size if isinstance(each, SizedRange) else 0
            if left > fewest:
                self._decided[name] = WantedReplicas(model=name, wanted=left, why=_LEFT)
            gateway.models.want(name, max(left, fewest))
        gateway.pages.add(scale_routes(lambda: [*self._rows()]))
        gateway.every(_LOOK_EVERY_S, self._look)

    def reconfigure(self, gateway: ServiceGateway) -> None:
        found = self._ranges()
        new = found.keys() - self._known
        self._decided = {name: each for name, each in self._decided.items() if name in found}
        self._use_scaler()
        for name in new:
            gateway.models.want(name, self._least(name, found[name]))

    def status(self) -> Mapping[str, Any]:
        return {"scaling": [*self._rows()]}

    def measure(self) -> Measured:
        return {WANTED_REPLICAS: [([each.model], each.wanted) for each in self._rows()]}

    def _use_scaler(self) -> None:
        wanted = self._gateway.table("scheduling").scaler, self._gateway.table("plugins")
        if wanted != self._made_for:
            self._plugin, self._scaler = make_scaler(self._gateway)
            self._made_for = wanted
        self._known = frozenset(self._ranges())

    def _ranges(self) -> Mapping[str, ReplicaRange]:
        return ranges(self._gateway.table("models"))

    def _least(self, name: str, range: ReplicaRange) -> int:
        return least(self._gateway.table("models")[name], range)

    def _rows(self) -> Iterator[ScaleStatus]:
        """Every model with a range of replicas, as decided last."""
        models = self._gateway.table("models")
        for name, each in self._ranges().items():
            decided = self._decided.get(name) or WantedReplicas(
                model=name, wanted=self._least(name, each), why=_NOT_YET
            )
            replicas = len(self._demand.replicas(name, launched=models[name].launches))
            yield ScaleStatus(model=name, replicas=replicas, wanted=decided.wanted, why=decided.why)

    def _look(self) -> None:
        """Ask the scaler, and begin to carry out what it wants."""
        view = self._demand.view()
        if not view.models:
            return
        decided = decide(self._plugin, self._scaler, view)
        for load in view.models:
            try:
                self._carry_out(load, decided[load.model])
            except EnginehouseError as error:  # noqa: PERF203 - each model alone
                _log.warning("The replicas of '%s' stay as they are: %s", load.model, error)

    def _carry_out(self, load: ModelLoad, decided: WantedReplicas) -> None:
        before = self._decided.get(load.model)
        if decided.wanted != (load.least if before is None else before.wanted):
            self._gateway.models.want(load.model, decided.wanted)
            self._demand.began_anew(load.model)
            text = "Model '%s' has %d replicas and should have %d: %s"
            _log.info(text, load.model, load.replicas, decided.wanted, decided.why)
        self._decided[load.model] = decided
