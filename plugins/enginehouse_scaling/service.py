"""Asks the scaler regularly, and has the gateway carry its decisions out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from enginehouse import EnginehouseError, Service
from enginehouse.backends import ModelLoad, ReplicaRange, SizedRange, WantedReplicas
from enginehouse.services import Measured, MetricInfo, ServiceGateway
from enginehouse_scaling.decide import decide, make_scaler
from enginehouse_scaling.demand import Demand, ranges
from enginehouse_scaling.scale_status import ScaleStatus

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
            if _size(each) > each.min:
                self._decided[name] = WantedReplicas(model=name, wanted=_size(each), why=_LEFT)
            gateway.models.want(name, _size(each))
        gateway.pages.add(scale_routes(lambda: [*self._rows()]))
        gateway.every(_LOOK_EVERY_S, self._look)

    def reconfigure(self, gateway: ServiceGateway) -> None:
        found = self._ranges()
        new = found.keys() - self._known
        self._decided = {name: each for name, each in self._decided.items() if name in found}
        self._use_scaler()
        for name in new:
            gateway.models.want(name, found[name].min)

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

    def _rows(self) -> Iterator[ScaleStatus]:
        """Every model with a range of replicas, as decided last."""
        models = self._gateway.table("models")
        for name, each in self._ranges().items():
            decided = self._decided.get(name) or WantedReplicas(model=name, wanted=each.min, why=_NOT_YET)
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


def _size(range: ReplicaRange) -> int:
    """The replicas that are wanted when the service starts: as many as an earlier gateway has left running."""
    return range.size if isinstance(range, SizedRange) else range.min
