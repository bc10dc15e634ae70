"""Completes the names that a running gateway knows, in shells that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
import msgspec

from enginehouse import EnginehouseError
from enginehouse_kit.gateway_client import GatewayClient

_TIMEOUT_S = 1.0

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


class _Named(msgspec.Struct):
    name: str


class _Identified(msgspec.Struct):
    id: str


class _Backends(msgspec.Struct):
    backends: list[_Named]


class _Models(msgspec.Struct):
    data: list[_Identified]


class _Requests(msgspec.Struct):
    requests: list[_Identified]


def _backends(gateway: GatewayClient) -> Iterable[str]:
    answer = gateway.get("/api/status", _TIMEOUT_S)
    return (each.name for each in gateway.read(answer, _Backends).backends)


def _models(gateway: GatewayClient) -> Iterable[str]:
    return (each.id for each in gateway.read(gateway.get("/v1/models", _TIMEOUT_S), _Models).data)


def _requests(gateway: GatewayClient) -> Iterable[str]:
    answer = gateway.get("/api/requests", _TIMEOUT_S)
    return (each.id for each in gateway.read(answer, _Requests).requests)


def _completing(names: Callable[[GatewayClient], Iterable[str]]) -> Complete:
    """Complete to the ``names`` of the gateway that the command's options name; to none if it does not answer."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        given: dict[str, Any] = context.params
        try:
            known = names(GatewayClient.of(given.get("config"), given.get("url"), given.get("key")))
            return sorted(name for name in known if name.startswith(incomplete))
        except EnginehouseError:
            return []

    return complete


backends = _completing(_backends)
models = _completing(_models)
requests = _completing(_requests)
