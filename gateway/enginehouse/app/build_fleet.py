"""Makes the fleet from the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.config.schema import BackendModelSettings, BackendSettings, CapabilitySettings, Config, ModelSettings
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.errors import ConfigError
from enginehouse.domain.replica import ASSUMED_LOAD_S, Health, ReplicaState, replica_name
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.telemetry.observers import Callbacks, Observers, notify

_log = logging.getLogger(__name__)


def build_fleet(
    config: Config,
    observers: Observers | None = None,
    clock: Callable[[], float] = SYSTEM_CLOCK.epoch,
    drivers: Mapping[str, DriverSupport] | None = None,
) -> Fleet:
    """The fleet of all configured backends. Remote ones have not been probed; managed ones are stopped.

    ``drivers`` say which backends load models themselves; by default, none does.
    """
    loaders = {type for type, driver in (drivers or {}).items() if driver.loading is not None}
    observers = observers or Observers()
    fleet = Fleet(
        config.checks,
        clock,
        on_health=partial(_report_health, observers.callbacks("backend_health")),
        on_hung=partial(notify, observers.callbacks("hung")),
        on_draining=partial(notify, observers.callbacks("backend_draining")),
        on_replicas=partial(notify, observers.callbacks("replicas_changed")),
    )
    fleet.defer()
    for name, model in config.models.items():
        if not model.launches:
            fleet.declare(name, _capabilities(model))
    for name, backend in config.backends.items():
        fleet.add(_remote(name, backend, backend.driver in loaders))
        fleet.load(name).slots = 0 if backend.driver in loaders else backend.concurrency
    for name, model in config.models.items():
        for managed, host in model.backends(name).items():
            fleet.add(_managed(managed, name, model, host))
            fleet.load(managed).slots = model.concurrency
            fleet.set_state(replica_name(name, managed), ReplicaState.STOPPED, ASSUMED_LOAD_S)
    fleet.publish_all()
    return fleet


def _report_health(callbacks: Callbacks, name: str, health: Health, why: str) -> None:
    if health is Health.UNHEALTHY:
        _log.warning("Backend '%s' is unhealthy: %s", name, why or "no reason was given")
    else:
        _log.info("Backend '%s' is %s", name, health.value)
    notify(callbacks, name, health)


def _remote(name: str, backend: BackendSettings, loads_models: bool) -> BackendInfo:
    declared = backend.models
    if isinstance(declared, list):
        declared = {model: BackendModelSettings() for model in declared}
    return _info(
        name,
        backend,
        url=backend.url,
        driver=backend.driver,
        host=backend.host,
        models=None if declared is None else {model: _capabilities(card) for model, card in declared.items()},
        names=_names_there(name, backend, loads_models),
        loads_models=loads_models,
    )


def _names_there(name: str, backend: BackendSettings, loads_models: bool) -> Mapping[str, str]:
    cards = backend.models if isinstance(backend.models, dict) else {}
    names = {model: card.upstream for model, card in cards.items() if card.upstream not in ("", model)}
    if names and loads_models:
        model, upstream = next(iter(names.items()))
        raise ConfigError(
            "this server loads models by its own names for them",
            key=f"backends.{name}.models.{model}.upstream",
            remedy=f'name the model \'{upstream}\', and put "{model}" = "{upstream}" under [routing.aliases]',
        )
    return names


def _managed(name: str, model_name: str, model: ModelSettings, host: str) -> BackendInfo:
    models = {model_name: _capabilities(model)}
    return _info(name, model, url="", driver=model.engine_driver, host=host, models=models, health=Health.HEALTHY)


def _info(name: str, served: BackendSettings | ModelSettings, **own: Any) -> BackendInfo:
    """A backend, with what backends and launched models say of themselves alike."""
    return BackendInfo(
        name=name,
        priority=served.priority,
        weight=served.weight,
        role=served.role,
        zone=served.zone,
        tier=served.tier,
        **own,
    )


def _capabilities(card: CapabilitySettings) -> Capabilities:
    return Capabilities(**{name: getattr(card, name) for name in Capabilities.__struct_fields__})
