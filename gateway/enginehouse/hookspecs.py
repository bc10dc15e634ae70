"""The registration hooks, in life-cycle order.

Each hook is called once, at start, with a ``register`` callable: ``register(type, factory)``. ``type`` is the name that
configuration uses; ``factory`` is the plugin's class. A class may declare ``Config``, a ``msgspec.Struct`` of its
parameters, and is then called with one of those. Hooks are never called on a request's way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pluggy

from enginehouse.interfaces.discoverers import Discoverer
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.migrators import Migrator
from enginehouse.interfaces.observers import Observer
from enginehouse.interfaces.rescheduling import ReschedulingPolicy
from enginehouse.interfaces.schedulers import Scheduler
from enginehouse.interfaces.scorers import Scorer
from enginehouse.interfaces.strategies import Strategy
from enginehouse.interfaces.swappers import Swapper

hookspec = pluggy.HookspecMarker("enginehouse")
hookimpl = pluggy.HookimplMarker("enginehouse")
"""Marks a function of a plugin module as the implementation of the hook of its name."""

T_contra = TypeVar("T_contra", contravariant=True)


class Register(Protocol[T_contra]):
    """What a hook receives."""

    def __call__(self, type: str, factory: Callable[..., T_contra]) -> None:
        """Offer ``factory`` under the name ``type``."""


# --- a request arrives -------------------------------------------------------------------------------------------


@hookspec
def register_extractors(register: Register[Extractor]) -> None:
    """Register extractors. All of them run on every request, in the order of registration."""


@hookspec
def register_filters(register: Register[Filter]) -> None:
    """Register filters. All of them run, or those named in ``routing.filters``, in that order."""


@hookspec
def register_scorers(register: Register[Scorer]) -> None:
    """Register scorers, chosen by ``routing.scorers``."""


@hookspec
def register_strategies(register: Register[Strategy]) -> None:
    """Register strategies, chosen by ``routing.strategy``."""


# --- it waits for its model --------------------------------------------------------------------------------------


@hookspec
def register_schedulers(register: Register[Scheduler]) -> None:
    """Register schedulers, chosen by ``scheduling.scheduler``."""


@hookspec
def register_swappers(register: Register[Swapper]) -> None:
    """Register swappers, chosen by ``scheduling.swapper``."""


# --- it is served ------------------------------------------------------------------------------------------------


@hookspec
def register_drivers(register: Register[Driver]) -> None:
    """Register drivers, chosen by ``driver`` of a backend or a model."""


@hookspec
def register_launchers(register: Register[Launcher]) -> None:
    """Register launchers, chosen by ``hosts.*.launcher``."""


@hookspec
def register_discoverers(register: Register[Discoverer]) -> None:
    """Register discoverers, chosen by ``discovery.*.type``."""


# --- it moves ----------------------------------------------------------------------------------------------------


@hookspec
def register_rescheduling_policies(register: Register[ReschedulingPolicy]) -> None:
    """Register rescheduling policies, chosen by ``rescheduling.policies``, in that order."""


@hookspec
def register_migrators(register: Register[Migrator]) -> None:
    """Register migrators, chosen by ``rescheduling.migrators``; the first that can carries a migration out."""


# --- it is watched -----------------------------------------------------------------------------------------------


@hookspec
def register_observers(register: Register[Observer]) -> None:
    """Register observers. All of them are told."""


@hookspec
def register_routes(register: Register[Any]) -> None:
    """Register extra HTTP pages: the type is their name, the factory returns a list of Starlette routes."""


@hookspec
def register_commands(register: Register[Any]) -> None:
    """Register extra commands: the type is the command's name, the factory returns a click command."""
