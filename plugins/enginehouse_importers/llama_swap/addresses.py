"""Addresses of servers in llama-swap's configuration."""

from __future__ import annotations

from ipaddress import ip_address

from enginehouse.settings import is_base_url
from enginehouse_importers.kit.table import Table


def read_url(table: Table, key: str) -> str:
    """The URL at ``key`` of ``table``. An invalid one is noted, and the result is empty."""
    url = table.text(key).rstrip("/")
    if url and not is_base_url(url):
        variable = "${env:" in url
        problem = "a URL cannot contain variables" if variable else "it is not the URL of a server"
        table.note(f"left out: {problem}", key)
        return ""
    return url


def is_here(host: str | None) -> bool:
    """Whether ``host`` means this machine."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified
