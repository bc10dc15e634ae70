"""Finds backends in a file, at a URL, in DNS or in the local network."""

from __future__ import annotations

from enginehouse import Discoverer, Register, hookimpl
from enginehouse_discovery.dns import DnsDiscoverer
from enginehouse_discovery.mdns import MdnsDiscoverer
from enginehouse_discovery.static import StaticDiscoverer

__all__ = ["DnsDiscoverer", "MdnsDiscoverer", "StaticDiscoverer"]


@hookimpl
def register_discoverers(register: Register[Discoverer]) -> None:
    register("static", StaticDiscoverer)
    register("dns", DnsDiscoverer)
    register("mdns", MdnsDiscoverer)
