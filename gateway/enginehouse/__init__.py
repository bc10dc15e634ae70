"""What nearly every plugin imports: hooks, interfaces, requests, replicas, records, base classes of errors, units.

The modules beside this one are public, too, each with the names of one subject, such as ``enginehouse.drivers``, and so
is ``enginehouse_kit``, the kit for authors. Packages, such as ``enginehouse.relay``, are internal: they may change.

A name is imported when it is first used: the command line starts faster than all of this is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enginehouse.config.section import Period as Period
    from enginehouse.config.units import format_duration as format_duration
    from enginehouse.config.units import parse_duration as parse_duration
    from enginehouse.config.units import parse_size as parse_size
    from enginehouse.domain.capabilities import Capabilities as Capabilities
    from enginehouse.domain.errors import ConfigError as ConfigError
    from enginehouse.domain.errors import EnginehouseError as EnginehouseError
    from enginehouse.domain.errors import GatewayError as GatewayError
    from enginehouse.domain.errors import InvalidRequest as InvalidRequest
    from enginehouse.domain.errors import PluginError as PluginError
    from enginehouse.domain.errors import RequestError as RequestError
    from enginehouse.domain.replica import Candidate as Candidate
    from enginehouse.domain.replica import Health as Health
    from enginehouse.domain.replica import ReplicaState as ReplicaState
    from enginehouse.domain.replica import Role as Role
    from enginehouse.domain.replica import Route as Route
    from enginehouse.domain.request import Body as Body
    from enginehouse.domain.request import Headers as Headers
    from enginehouse.domain.request_record import AttemptRecord as AttemptRecord
    from enginehouse.domain.request_record import RequestRecord as RequestRecord
    from enginehouse.domain.requirements import InferenceRequest as InferenceRequest
    from enginehouse.domain.requirements import Requirements as Requirements
    from enginehouse.interfaces.authenticators import Authenticator as Authenticator
    from enginehouse.interfaces.continuers import Continuer as Continuer
    from enginehouse.interfaces.drivers import Driver as Driver
    from enginehouse.interfaces.exporters import Exporter as Exporter
    from enginehouse.interfaces.extractors import Extractor as Extractor
    from enginehouse.interfaces.filters import Filter as Filter
    from enginehouse.interfaces.hand_overs import HandOver as HandOver
    from enginehouse.interfaces.hooks import Kind as Kind
    from enginehouse.interfaces.hooks import Register as Register
    from enginehouse.interfaces.hooks import hookimpl as hookimpl
    from enginehouse.interfaces.launchers import Launcher as Launcher
    from enginehouse.interfaces.model_sources import ModelSource as ModelSource
    from enginehouse.interfaces.observers import Observer as Observer
    from enginehouse.interfaces.schedulers import Scheduler as Scheduler
    from enginehouse.interfaces.scorers import Scorer as Scorer
    from enginehouse.interfaces.services import Service as Service
    from enginehouse.interfaces.strategies import Strategy as Strategy
    from enginehouse.interfaces.swappers import Swapper as Swapper
    from enginehouse.relay.middleware import Middleware as Middleware
    from enginehouse.relay.web_socket_server import WebSocketServer as WebSocketServer

    __version__: str

_MODULES = {
    "hookimpl": "enginehouse.interfaces.hooks",
    "Register": "enginehouse.interfaces.hooks",
    "Kind": "enginehouse.interfaces.hooks",
    "Extractor": "enginehouse.interfaces.extractors",
    "Filter": "enginehouse.interfaces.filters",
    "Scorer": "enginehouse.interfaces.scorers",
    "Strategy": "enginehouse.interfaces.strategies",
    "Scheduler": "enginehouse.interfaces.schedulers",
    "Swapper": "enginehouse.interfaces.swappers",
    "Driver": "enginehouse.interfaces.drivers",
    "Launcher": "enginehouse.interfaces.launchers",
    "ModelSource": "enginehouse.interfaces.model_sources",
    "Authenticator": "enginehouse.interfaces.authenticators",
    "Middleware": "enginehouse.relay.middleware",
    "WebSocketServer": "enginehouse.relay.web_socket_server",
    "Service": "enginehouse.interfaces.services",
    "Continuer": "enginehouse.interfaces.continuers",
    "HandOver": "enginehouse.interfaces.hand_overs",
    "Observer": "enginehouse.interfaces.observers",
    "Exporter": "enginehouse.interfaces.exporters",
    "Body": "enginehouse.domain.request",
    "Headers": "enginehouse.domain.request",
    "InferenceRequest": "enginehouse.domain.requirements",
    "Requirements": "enginehouse.domain.requirements",
    "Candidate": "enginehouse.domain.replica",
    "Capabilities": "enginehouse.domain.capabilities",
    "Health": "enginehouse.domain.replica",
    "ReplicaState": "enginehouse.domain.replica",
    "Role": "enginehouse.domain.replica",
    "Route": "enginehouse.domain.replica",
    "RequestRecord": "enginehouse.domain.request_record",
    "AttemptRecord": "enginehouse.domain.request_record",
    "EnginehouseError": "enginehouse.domain.errors",
    "ConfigError": "enginehouse.domain.errors",
    "PluginError": "enginehouse.domain.errors",
    "GatewayError": "enginehouse.domain.errors",
    "RequestError": "enginehouse.domain.errors",
    "InvalidRequest": "enginehouse.domain.errors",
    "Period": "enginehouse.config.section",
    "format_duration": "enginehouse.config.units",
    "parse_duration": "enginehouse.config.units",
    "parse_size": "enginehouse.config.units",
}
"""The module of each name; a test compares them with the imports above."""

__all__ = ["__version__", *_MODULES]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            found = version("enginehouse")
        elif name in _MODULES:
            from importlib import import_module

            found = getattr(import_module(_MODULES[name]), name)
        else:
            from enginehouse._moved import find

            found = find(name)
        globals()[name] = found
        return found
