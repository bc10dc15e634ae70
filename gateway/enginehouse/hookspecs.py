"""The registration hooks, in life-cycle order.

The gateway calls each hook once, at start, with a callable: ``register(type, factory)``. ``type`` is the name that
configuration uses, ``factory`` is the plugin's class. The gateway calls a class that declares ``Config``, a
``msgspec.Struct`` of its parameters, with an instance of it, and a class without ``Config`` without arguments. No hook
runs during a request.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, TypeVar

import pluggy

if typing.TYPE_CHECKING:  # a plugin that registers a command imports no interface
    from enginehouse.interfaces.discoverers import Discoverer
    from enginehouse.interfaces.drivers import Driver
    from enginehouse.interfaces.engine_policies import EnginePolicy
    from enginehouse.interfaces.extractors import Extractor
    from enginehouse.interfaces.filters import Filter
    from enginehouse.interfaces.guards import Guard
    from enginehouse.interfaces.launchers import Launcher
    from enginehouse.interfaces.limit_stores import LimitStore
    from enginehouse.interfaces.migrators import Migrator
    from enginehouse.interfaces.model_sources import ModelSource
    from enginehouse.interfaces.observers import Observer
    from enginehouse.interfaces.protocols import Protocol
    from enginehouse.interfaces.rescheduling_policies import ReschedulingPolicy
    from enginehouse.interfaces.scalers import Scaler
    from enginehouse.interfaces.schedulers import Scheduler
    from enginehouse.interfaces.scorers import Scorer
    from enginehouse.interfaces.strategies import Strategy
    from enginehouse.interfaces.swappers import Swapper
    from enginehouse.interfaces.usage_stores import UsageStore

hookspec = pluggy.HookspecMarker("enginehouse")
hookimpl = pluggy.HookimplMarker("enginehouse")
"""Decorator: the function implements the hook of the same name."""

T_contra = TypeVar("T_contra", contravariant=True)


class Register(typing.Protocol[T_contra]):
    """The callable that a hook receives."""

    def __call__(self, type: str, factory: Callable[..., T_contra]) -> None:
        """Register ``factory`` under the name ``type``."""


# --- routing


@hookspec
def register_extractors(register: Register[Extractor]) -> None:
    """Register extractors. All of them run on every request, in the order of registration."""


@hookspec
def register_filters(register: Register[Filter]) -> None:
    """Register filters. All of them run, or only those in ``routing.filters``, in that order."""


@hookspec
def register_scorers(register: Register[Scorer]) -> None:
    """Register scorers, chosen by ``routing.scorers``."""


@hookspec
def register_strategies(register: Register[Strategy]) -> None:
    """Register strategies, chosen by ``routing.strategy``."""


# --- scheduling


@hookspec
def register_schedulers(register: Register[Scheduler]) -> None:
    """Register schedulers, chosen by ``scheduling.scheduler``."""


@hookspec
def register_swappers(register: Register[Swapper]) -> None:
    """Register swappers, chosen by ``scheduling.swapper``."""


@hookspec
def register_scalers(register: Register[Scaler]) -> None:
    """Register scalers, chosen by ``scheduling.scaler``. They decide for models with ``replicas = { min, max }``."""


# --- engines


@hookspec
def register_drivers(register: Register[Driver]) -> None:
    """Register drivers, chosen by ``driver`` of a backend or a model."""


@hookspec
def register_launchers(register: Register[Launcher]) -> None:
    """Register launchers, chosen by ``hosts.*.launcher``."""


@hookspec
def register_discoverers(register: Register[Discoverer]) -> None:
    """Register discoverers, chosen by ``discovery.*.type``."""


@hookspec
def register_model_sources(register: Register[ModelSource]) -> None:
    """Register model sources. The first one that takes a name downloads the model."""


@hookspec
def register_protocols(register: Register[Protocol]) -> None:
    """Register clients' protocols. The gateway serves the paths of all of them."""


# --- callers


@hookspec
def register_guards(register: Register[Guard]) -> None:
    """Register guards, chosen by ``guards``, in that order."""


@hookspec
def register_limit_stores(register: Register[LimitStore]) -> None:
    """Register limit stores, chosen by ``limits.store``."""


@hookspec
def register_usage_stores(register: Register[UsageStore]) -> None:
    """Register usage stores, chosen by ``usage.store``."""


# --- rescheduling


@hookspec
def register_rescheduling_policies(register: Register[ReschedulingPolicy]) -> None:
    """Register rescheduling policies, chosen by ``rescheduling.policies``, in that order."""


@hookspec
def register_migrators(register: Register[Migrator]) -> None:
    """Register migrators, chosen by ``rescheduling.migrators``. The first that can move a request does so."""


# --- simulation


@hookspec
def register_engine_policies(register: Register[EnginePolicy]) -> None:
    """Register policies of simulated engines, chosen by ``simulator.policy``."""


# --- observation and extra surfaces


@hookspec
def register_observers(register: Register[Observer]) -> None:
    """Register observers. The gateway calls all of them. An ``Exporter`` among them gets its traces, too."""


@hookspec
def register_routes(register: Register[Any]) -> None:
    """Register extra HTTP pages: ``type`` names them, ``factory`` returns a list of Starlette routes.

    They are open to everyone, even if keys are set. For pages that only operators may use, return ``guarded(routes)``.

    Routes of the type ``compat.NAME`` answer the paths of another program for its tools. The gateway has them only with
    ``[compat] NAME = true``, and they come before its own.
    """


@hookspec
def register_commands(register: Register[Any]) -> None:
    """Register extra commands: ``type`` is the command's name, ``factory`` returns a click command.

    ``import NAME`` becomes a command of the group ``enginehouse import``.
    """
