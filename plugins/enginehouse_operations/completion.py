"""Completes the names that a running gateway knows, in shells that ask for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from enginehouse import EnginehouseError
from enginehouse_kit.gateway_client import GatewayClient

_TIMEOUT_S = 1.0
_NONE = msgspec.Raw(b"[]")

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


class _Row(msgspec.Struct):
    id: str = ""
    name: str = ""


def _completing(path: str, rows: str, name: str) -> Complete:
    """Complete to the field ``name`` of the ``rows`` at ``path`` of the gateway that the command's options name.

    To nothing if the gateway does not answer.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        given: dict[str, Any] = context.params
        try:
            gateway = GatewayClient.of(given.get("config"), given.get("url"), given.get("key"))
            answer = gateway.read(gateway.get(path, _TIMEOUT_S), dict[str, msgspec.Raw])
            found = (getattr(each, name) for each in gateway.read(answer.get(rows, _NONE), list[_Row]))
            return sorted(known for known in found if known and known.startswith(incomplete))
        except EnginehouseError:
            return []

    return complete


backends = _completing("/api/status", "backends", "name")
models = _completing("/v1/models", "data", "id")
requests = _completing("/api/requests", "requests", "id")
