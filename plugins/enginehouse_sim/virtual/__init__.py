"""A gateway on a virtual clock, in front of engines that its caller simulates.

It is the gateway of ``serve`` with other ends, so it imports modules of the gateway that plugins do not: pyproject.toml
names them.

::

    virtual_gateway   the gateway itself, with a virtual clock, network and launcher; changes of its configuration
    virtual_engines   the interfaces that the caller implements: the engines, and the clients of requests
"""

from enginehouse_sim.virtual.virtual_engines import VirtualBackend as VirtualBackend
from enginehouse_sim.virtual.virtual_engines import VirtualClient as VirtualClient
from enginehouse_sim.virtual.virtual_engines import VirtualEngines as VirtualEngines
from enginehouse_sim.virtual.virtual_engines import VirtualProcess as VirtualProcess
from enginehouse_sim.virtual.virtual_gateway import VirtualGateway as VirtualGateway
from enginehouse_sim.virtual.virtual_gateway import VirtualSettings as VirtualSettings
