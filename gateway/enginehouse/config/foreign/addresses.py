"""Where llama-swap finds its servers."""

from __future__ import annotations

from ipaddress import ip_address

from enginehouse.config.foreign.table import Table
from enginehouse.config.rules import is_base_url


def read_url(table: Table, key: str) -> str:
    """The address of a server at ``key`` of ``table``; empty, and noted, if it is none."""
    url = table.text(key).rstrip("/")
    if url and not is_base_url(url):
        variable = "${env:" in url
        problem = "no variables are filled in there" if variable else "it is not the address of a server"
        table.note(f"left out: {problem}", key)
        return ""
    return url


def is_here(host: str | None) -> bool:
    """Whether ``host`` is the machine that asks."""
    try:
        address = ip_address(host or "")
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified
