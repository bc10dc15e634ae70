"""The kinds of things that plugins register: one table of hook, kind and interface, and the check that it is met."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import msgspec

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


class Kind(NamedTuple):
    """One extension point: its hook, the word for what is registered there, and the interface of that.

    ``interface`` is ``None`` where the factory returns a thing of another library (Starlette routes, a click command).
    """

    hook: str
    name: str
    interface: type | None


KINDS = (
    Kind("register_extractors", "extractor", Extractor),
    Kind("register_filters", "filter", Filter),
    Kind("register_scorers", "scorer", Scorer),
    Kind("register_strategies", "strategy", Strategy),
    Kind("register_schedulers", "scheduler", Scheduler),
    Kind("register_swappers", "swapper", Swapper),
    Kind("register_drivers", "driver", Driver),
    Kind("register_launchers", "launcher", Launcher),
    Kind("register_discoverers", "discoverer", Discoverer),
    Kind("register_rescheduling_policies", "rescheduling_policy", ReschedulingPolicy),
    Kind("register_migrators", "migrator", Migrator),
    Kind("register_observers", "observer", Observer),
    Kind("register_routes", "routes", None),
    Kind("register_commands", "command", None),
)
"""In the order of ``hookspecs``, which is the order in which the hooks are called."""


def methods(interface: type) -> dict[str, Callable[..., Any]]:
    """The methods of ``interface`` by name, in the order written."""
    return {name: value for name, value in vars(interface).items() if name[0] != "_" and inspect.isfunction(value)}


def faults(interface: type | None, product: type) -> Iterator[str]:
    """What keeps objects of the class ``product`` from being used as ``interface``, in words that name the method."""
    for name, wanted in methods(interface).items() if interface else ():
        given = getattr(product, name, None)
        if not callable(given) or _is_placeholder(given, wanted, interface):
            yield f"the method '{name}' is missing"
        elif inspect.iscoroutinefunction(given) and not inspect.iscoroutinefunction(wanted):
            yield f"the method '{name}' must not be async"
        elif not _takes(product, name, len(inspect.signature(wanted).parameters)):
            yield f"the method '{name}' must take {_arguments(wanted)}"


def factory_faults(kind: Kind, factory: Any) -> Iterator[str]:
    """What is wrong with ``factory``, as far as can be said without calling it."""
    if isinstance(factory, type):
        yield from faults(kind.interface, factory)
    elif not callable(factory) or isinstance(factory, click.Command):
        yield f"expected a class, or a function that returns the {kind.name}, got {factory!r}"
    config = getattr(factory, "Config", None)
    if config is not None and not (isinstance(config, type) and issubclass(config, msgspec.Struct)):
        yield "its 'Config' is not a msgspec.Struct"


def _is_placeholder(given: Any, wanted: Callable[..., Any], interface: Any) -> bool:
    """Whether ``given`` is an abstract method, or a protocol's own method inherited by a class that derives from it."""
    inherited_from_protocol = getattr(interface, "_is_protocol", False) and given is wanted
    return inherited_from_protocol or getattr(given, "__isabstractmethod__", False)


def _takes(product: type, name: str, arguments: int) -> bool:
    """Whether the method can be called with that many positional arguments, ``self`` included."""
    bound = isinstance(inspect.getattr_static(product, name), (staticmethod, classmethod))
    try:
        signature = inspect.signature(getattr(product, name))
    except ValueError:  # written in another language, without a signature to read
        return True
    try:
        signature.bind(*[None] * (arguments - bound))
    except TypeError:
        return False
    return True


def _arguments(method: Callable[..., Any]) -> str:
    return ", ".join(f"'{name}'" for name in list(inspect.signature(method).parameters)[1:]) or "no argument"
