"""The kinds of objects that plugins register, and the check that a class has the methods of its kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import distribution
from typing import Any

import click
import msgspec

from enginehouse.domain.foreign import shown
from enginehouse.interfaces.authenticators import Authenticator
from enginehouse.interfaces.continuers import Continuer
from enginehouse.interfaces.driver_support import SUPPORTS
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.filters import Filter
from enginehouse.interfaces.hand_overs import HandOver
from enginehouse.interfaces.hooks import Kind as Kind
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.misspelt import misspelt
from enginehouse.interfaces.model_sources import ModelSource
from enginehouse.interfaces.observers import Observer
from enginehouse.interfaces.schedulers import Scheduler
from enginehouse.interfaces.scorers import Scorer
from enginehouse.interfaces.services import Service
from enginehouse.interfaces.strategies import Strategy
from enginehouse.interfaces.swappers import Swapper
from enginehouse.relay.middleware import Middleware
from enginehouse.relay.web_socket_server import WebSocketServer


def _of_kit() -> Iterator[Kind]:
    """The kinds that only bundled plugins use: their interfaces are the kit's, which an entry point names."""
    for entry in distribution("enginehouse").entry_points.select(group="enginehouse.kinds"):
        yield from entry.load()


KINDS: tuple[Kind, ...] = (
    Kind(
        "extractor",
        "register_extractors",
        Extractor,
        "extractors. All of them run on every request, in the order of registration.",
    ),
    Kind(
        "filter",
        "register_filters",
        Filter,
        "filters. All of them run, or only those in ``routing.filters``, in that order.",
    ),
    Kind("scorer", "register_scorers", Scorer, "scorers, chosen by ``routing.scorers``."),
    Kind("strategy", "register_strategies", Strategy, "strategies, chosen by ``routing.strategy``."),
    Kind("scheduler", "register_schedulers", Scheduler, "schedulers, chosen by ``scheduling.scheduler``.", stays=True),
    Kind("swapper", "register_swappers", Swapper, "swappers, chosen by ``scheduling.swapper``."),
    Kind("driver", "register_drivers", Driver, "drivers, chosen by ``driver`` of a backend or a model.", stays=True),
    Kind(
        "launcher", "register_launchers", Launcher, "launchers, chosen by ``hosts.*.launcher``.", stays=True, acts=True
    ),
    Kind(
        "model_source",
        "register_model_sources",
        ModelSource,
        "model sources. The first one that takes a name downloads the model.",
    ),
    Kind(
        "continuer",
        "register_continuers",
        Continuer,
        "what keeps streams and continues them at other engines. A gateway has one at most.",
        stays=True,
    ),
    Kind(
        "hand_over",
        "register_hand_overs",
        HandOver,
        "what has one engine read the prompt of a request that another one answers. A gateway has one at most.",
    ),
    Kind(
        "middleware",
        "register_middleware",
        Middleware,
        "what stands between clients and their requests. A gateway has one for protocols, and one for interceptors.",
        stays=True,
    ),
    Kind(
        "web_socket_server",
        "register_web_socket_servers",
        WebSocketServer,
        "what serves the clients that ask for a WebSocket. A gateway has one at most.",
        stays=True,
        acts=True,
    ),
    Kind(
        "authenticator",
        "register_authenticators",
        Authenticator,
        "authenticators. The first that knows a credential says whose it is; keys come before them.",
        stays=True,
    ),
    Kind(
        "service",
        "register_services",
        Service,
        "services, which run beside requests, for a table ``[services.TYPE]`` or one of the configuration's own.",
        stays=True,
        acts=True,
    ),
    Kind(
        "observer",
        "register_observers",
        Observer,
        "observers. The gateway calls all of them. An ``Exporter`` among them gets its traces, too.",
        stays=True,
        acts=True,
    ),
    Kind(
        "routes",
        "register_routes",
        None,
        "extra HTTP pages: ``type`` names them, ``factory`` returns a list of Starlette routes.\n\n"
        "They are open to everyone, even if keys are set. For pages that only operators may use, return\n"
        "``guarded(routes)``.\n\n"
        "Routes of the type ``compat.NAME`` answer the paths of another program for its tools. The gateway has them\n"
        "only with ``[compat] NAME = true``, and they come before its own.",
        stays=True,
    ),
    Kind(
        "command",
        "",
        None,
        "extra commands, with entry points of the group ``enginehouse.commands``. Each has the command's name, and\n"
        "leads to a click command, or to a class with a ``Config`` or a function that returns one.\n\n"
        "``import NAME`` becomes a command of the group ``enginehouse import``.",
    ),
    *_of_kit(),
)
"""All kinds. Their hooks are called in this order."""
_OPTIONAL: Mapping[type | None, Sequence[type]] = {Driver: SUPPORTS}
"""The interfaces that a class may inherit from besides the one of its kind."""


def methods(interface: type) -> dict[str, Callable[..., Any]]:
    """The public methods of ``interface`` by name, in source order."""
    return {name: value for name, value in vars(interface).items() if name[0] != "_" and inspect.isfunction(value)}


@lru_cache(maxsize=1024)
def faults(interface: type | None, product: type) -> tuple[str, ...]:
    """Why objects of the class ``product`` cannot serve as ``interface``; each fault names a method.

    ``product`` need not inherit from ``interface``. It must then have all methods, also those with a default. What an
    optional interface declares has an effect only in a class that inherits from it.
    """
    found = [*_faults(interface, product), *misspelt(interface, product)] if interface else []
    for optional in _OPTIONAL.get(interface, ()):
        if issubclass(product, optional):
            found += _faults(optional, product)
        else:
            public = [name for name in vars(optional) if name[0] != "_" and hasattr(product, name)]
            found += [f"'{name}' needs the base class '{optional.__name__}'" for name in public]
    return tuple(found)


def _faults(interface: type, product: type) -> Iterator[str]:
    for name, wanted in methods(interface).items():
        given = getattr(product, name, None)
        if not callable(given) or getattr(given, "__isabstractmethod__", False):
            yield f"the method '{name}' is missing"
        elif inspect.iscoroutinefunction(given) and not _may_wait(wanted):
            yield f"the method '{name}' must not be async"
        elif inspect.iscoroutinefunction(wanted) and inspect.isfunction(given) and not _may_wait(inspect.unwrap(given)):
            yield f"the method '{name}' must be async"
        elif not _takes(product, name, len(inspect.signature(wanted).parameters)):
            yield f"the method '{name}' must take {_arguments(wanted)}"


def _may_wait(method: Callable[..., Any]) -> bool:
    returned = str(inspect.signature(method).return_annotation)
    return inspect.iscoroutinefunction(method) or "Awaitable" in returned or "Coroutine" in returned


def factory_faults(kind: Kind, factory: Any) -> Iterator[str]:
    """The faults of ``factory`` that show without calling it."""
    if isinstance(factory, type):
        yield from faults(kind.interface, factory)
    elif not callable(factory) or isinstance(factory, click.Command):
        yield f"expected a class, or a function that returns the {kind.name}, got {shown(factory)}"
    config = getattr(factory, "Config", None)
    if config is not None and not (isinstance(config, type) and issubclass(config, msgspec.Struct)):
        yield "its 'Config' is not a msgspec.Struct"
    elif callable(factory) and not isinstance(factory, click.Command):
        yield from _constructor_faults(factory, config)


def _constructor_faults(factory: Callable[..., Any], config: type | None) -> Iterator[str]:
    """The gateway calls the factory with its ``Config`` object if it has one, else without arguments."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a class written in C may have no signature
        return
    try:
        signature.bind(*([] if config is None else [config]))
    except TypeError:
        if config is None:
            yield "it has no 'Config', so its constructor must take no argument: declare its parameters in a 'Config'"
        else:
            yield "its constructor must take one argument, its 'Config'"


def _takes(product: type, name: str, arguments: int) -> bool:
    """Whether the method accepts ``arguments`` positional arguments, ``self`` included."""
    bound = isinstance(inspect.getattr_static(product, name), (staticmethod, classmethod))
    try:
        signature = inspect.signature(getattr(product, name))
    except ValueError:  # a method written in C may have no signature
        return True
    try:
        signature.bind(*[None] * (arguments - bound))
    except TypeError:
        return False
    return True


def _arguments(method: Callable[..., Any]) -> str:
    return ", ".join(f"'{name}'" for name in list(inspect.signature(method).parameters)[1:]) or "no argument"
