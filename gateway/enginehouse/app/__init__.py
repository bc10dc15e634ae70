"""The composition root: the only package that knows all others.

::

    gateway             the whole gateway: construction, start and stop
    pages               what it answers itself
    build               makes the parts of a gateway from its configuration
    build_fleet         makes the fleet
    build_relay         makes what live requests share, and changes it
    build_router        makes the router
    build_rescheduling  makes the rescheduler, or its planner alone
    continuations       makes the rules for streams that break
    exports             finds the exporter among the observers, and makes the tracer
    plugin_instances    makes instances of registered types with their parameters
    rehearsal           builds a gateway and starts nothing
    reload              reads the configuration again, on request or when its file changes
    config_diff         what a new configuration changes
    config_change       prepares such a change, then carries it out in one step
    callers             the keys, limits and usage of callers
    discovery/          lets found backends join
    scaling/            sizes models
    workers/            shares the work among processes
    take_over/          lets a new process take over
    virtual/            the gateway's decisions on a virtual clock, for simulations
    watch               detects changes of a file
"""

from __future__ import annotations

from enginehouse.app.build import build_swapper
from enginehouse.app.build_fleet import build_fleet
from enginehouse.app.build_rescheduling import build_planner
from enginehouse.app.build_router import build_router
from enginehouse.app.gateway import Gateway
from enginehouse.app.rehearsal import rehearse_start

__all__ = ["Gateway", "build_fleet", "build_planner", "build_router", "build_swapper", "rehearse_start"]
