"""Finds backends in a file, at a URL, in DNS or in the local network, and has the gateway serve with them.

::

    static, dns, mdns   the discoverers
    service             watches the configured ones, and has the gateway serve with what they have found
"""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl
from enginehouse_discovery.dns import DnsDiscoverer
from enginehouse_discovery.mdns import MdnsDiscoverer
from enginehouse_discovery.service import Discovery
from enginehouse_discovery.static import StaticDiscoverer
from enginehouse_kit.discoverers import Discoverer

__all__ = ["DnsDiscoverer", "MdnsDiscoverer", "StaticDiscoverer"]


@hookimpl
def register_discoverers(register: Register[Discoverer]) -> None:
    register("static", StaticDiscoverer)
    register("dns", DnsDiscoverer)
    register("mdns", MdnsDiscoverer)


@hookimpl
def register_services(register: Register[Service]) -> None:
    register("discovery", Discovery)
