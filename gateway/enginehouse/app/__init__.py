"""The composition root: builds all parts of a gateway in one process.

::

    gateway             the whole gateway: construction, start and stop, and a rehearsal of the start
    pages               what it answers itself
    sampling            its figures, once a second
    request_path        what relays requests, in a gateway or in one of its workers, and how it is changed
    plan                a configuration as it is used, checked, with its drivers and warnings
    needs               what it needs of plugins, such as types that it names
    build               makes parts of it from the configuration
    build_relay         makes the rules of the relay
    build_router        makes the router
    path_plugins        makes the plugins on the path of requests that stay: observers, protocols, middleware and others
    findings            collects the errors of a configuration, so that they are raised together
    exports             finds the exporter among the observers, and makes the tracer
    plugin_instances    makes instances of registered types with their parameters
    picker              a gateway that decides for a proxy
    reload              reads the configuration again, on request or when its file changes
    config_diff         what a new configuration changes
    config_change       prepares such a change, then carries it out in one step
    service_changes     what services change of a configuration: backends that they found, and numbers of replicas
    status_puller       what engines report of their load
    strategy_memory     what strategies have learned, through reloads and restarts
    callers             the authenticators, and the one of them that counts requests
    services/           runs services of plugins, and is the gateway as they see it
"""

from __future__ import annotations

from enginehouse.app.build import build_fleet, build_swapper
from enginehouse.app.build_router import build_router
from enginehouse.app.gateway import Gateway, rehearse_start

__all__ = ["Gateway", "build_fleet", "build_router", "build_swapper", "rehearse_start"]
