"""Asks the scaler regularly, and carries its decisions out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app.plugin_instances import create, identity
from enginehouse.app.request_path import RequestPath
from enginehouse.app.scaling.demand import Demand, ranges
from enginehouse.config.plugin_tables import plugin_table
from enginehouse.config.schema import Config, SizedRange
from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.scale_status import ScaleStatus
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.interfaces.scalers import ModelLoad, Scaler, ScaleView, WantedReplicas
from enginehouse.plugin_manager.registry import Registry
from enginehouse.telemetry.plugin_failures import plugin_errors, wrong_result

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_NOT_YET = "not decided yet"
_LEFT = "so many ran when the gateway started"


class Scaling:
    """Keeps the number of replicas that each model with a range shall have.

    A replica more is a backend more, which is loaded in its turn; a replica less drains, and its streams move. The
    backend of a model without replicas stays, stopped, so that a request can start it. Models that the gateway does not
    launch are only told of: somebody else starts their engines.
    """

    def __init__(self, path: RequestPath, engines: ManagedEngines) -> None:
        self._registry = path.registry
        self._engines = engines
        self._demand = Demand(path.relay, engines)
        self._resize: Callable[[], None] = lambda: None
        self._decided: dict[str, WantedReplicas] = {}
        self._tasks = BackgroundTasks()
        self._config = path.config
        self._scaler, self._plugin = make_scaler(path.config, path.registry)

    def recall(self, running: Collection[str], resize: Callable[[], None]) -> None:
        """Want as many replicas as an earlier gateway has left ``running``, by the names of their backends.

        ``resize`` puts the configuration in force that ``sized`` makes. Raises ``EnginehouseError``.
        """
        self._resize = resize
        for name, each in ranges(self._config).items():
            backends = self._config.models[name].possible_backends(name)
            left = max([number for number, backend in enumerate(backends, 1) if backend in running], default=0)
            if left > each.min:
                self._decided[name] = WantedReplicas(model=name, wanted=left, why=_LEFT)
        if self._decided:
            resize()

    def open(self) -> None:
        for name, each in ranges(self._config).items():
            self._grow(name, self._decided[name].wanted if name in self._decided else each.min)
        self._tasks.every(_LOOK_EVERY_S, self._look)

    def close(self) -> None:
        self._tasks.cancel()

    def sized(self, config: Config) -> Config:
        """``config`` with as many backends as are wanted now."""
        return sized(config, {name: each.wanted for name, each in self._decided.items()})

    def reconfigure(self, config: Config) -> None:
        """Scale the models of another configuration."""
        before, self._config = self._config, config
        self._decided = {name: each for name, each in self._decided.items() if name in ranges(config)}
        if _scaler_of(config) != _scaler_of(before):
            self._scaler, self._plugin = make_scaler(config, self._registry)
        for name, each in ranges(config).items():
            if name not in ranges(before):
                self._grow(name, each.min)

    def status(self) -> list[ScaleStatus]:
        """Every model with a range of replicas, as decided last."""
        return [
            ScaleStatus(
                model=name,
                replicas=len(self._demand.replicas(name, launched=self._config.models[name].launches)),
                wanted=decided.wanted,
                why=decided.why,
            )
            for name, each in ranges(self._config).items()
            for decided in [self._decided.get(name) or WantedReplicas(model=name, wanted=each.min, why=_NOT_YET)]
        ]

    def _look(self) -> None:
        try:
            self.look()
        except EnginehouseError as error:
            _log.warning("The replicas stay as they are: %s", error)

    def look(self) -> None:
        """Ask the scaler, and begin to carry out what it wants. Raises ``EnginehouseError``."""
        view = self._demand.view(self._config)
        if not view.models:
            return
        before, self._decided = self._decided, decide(self._scaler, self._plugin, view)
        changed = [load for load in view.models if self._differs(before, load)]
        if not changed:
            return
        try:
            self._resize()
        except EnginehouseError:
            self._decided = before
            raise
        for load in changed:
            self._carry_out(load)

    def _differs(self, before: Mapping[str, WantedReplicas], load: ModelLoad) -> bool:
        known = before.get(load.model)
        return self._decided[load.model].wanted != (load.least if known is None else known.wanted)

    def _carry_out(self, load: ModelLoad) -> None:
        decided = self._decided[load.model]
        self._demand.began_anew(load.model)
        text = "Model '%s' has %d replicas and should have %d: %s"
        _log.info(text, load.model, load.replicas, decided.wanted, decided.why)
        if decided.wanted > load.replicas:
            self._grow(load.model, decided.wanted)
        elif not decided.wanted:
            self._engines.rest(load.model)

    def _grow(self, model: str, replicas: int) -> None:
        if self._config.models[model].launches:
            self._engines.preload_some(model, replicas)


def decide(scaler: Scaler, plugin: PluginId, view: ScaleView) -> dict[str, WantedReplicas]:
    """What ``scaler`` wants of each model, within its limits. Raises ``PluginFailed`` for any other answer."""
    with plugin_errors(plugin):
        plan = scaler.plan(view)
    if not isinstance(plan, Sequence) or not all(isinstance(each, WantedReplicas) for each in plan):
        raise wrong_result(plugin, f"returned an object of type {type(plan).__name__} instead of WantedReplicas")
    loads = {each.model: each for each in view.models}
    if [each.model for each in plan] != list(loads) or not all(type(each.wanted) is int for each in plan):
        raise wrong_result(plugin, "must return a whole number for each model of the view, in their order")
    return {each.model: _limited(each, loads[each.model]) for each in plan}


def _limited(decided: WantedReplicas, load: ModelLoad) -> WantedReplicas:
    wanted = min(max(decided.wanted, load.least), load.most)
    if wanted == decided.wanted:
        return decided
    limit = "at least" if wanted > decided.wanted else "at most"
    return WantedReplicas(model=load.model, wanted=wanted, why=f"{decided.why}; {limit} {wanted} are allowed")


def make_scaler(config: Config, registry: Registry) -> tuple[Scaler, PluginId]:
    """The configured scaler. Raises ``ConfigError`` or ``PluginError``."""
    type = config.scheduling.scaler
    made: Scaler = create(config, registry, "scaler", type, "scheduling.scaler")
    return made, identity(registry, "scaler", type)


def _scaler_of(config: Config) -> tuple[object, ...]:
    type = config.scheduling.scaler
    return type, plugin_table(config.plugins, "scaler", type)


def sized(config: Config, wanted: Mapping[str, int]) -> Config:
    """``config`` with the backends for the replicas that are ``wanted``; for models that are not in it, the fewest."""
    models = {}
    for name, each in ranges(config).items():
        size = min(max(wanted.get(name, each.min), each.min), each.max)
        replicas = SizedRange(min=each.min, max=each.max, size=size)
        models[name] = replace(config.models[name], replicas=replicas)
    return replace(config, models={**config.models, **models}) if models else config
