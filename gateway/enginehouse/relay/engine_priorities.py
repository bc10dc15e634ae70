"""Tells engines the priorities of keys, where engines order requests by them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic

import msgspec

from enginehouse.interfaces.drivers import Driver, LaunchSpec
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_log = logging.getLogger(__name__)

PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses"})
"""The endpoints whose requests have a priority."""
_FIELD = "priority"
_TIMEOUT_S = 5.0
_BELIEVED_S = 60.0
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def with_priority(body: bytes, order: int, priority: int) -> bytes:
    """``body`` with the ``priority`` of its key, for an engine with this ``Driver.priority_order``.

    A key without one leaves the client's own.
    """
    try:
        fields = _fields(body)
    except msgspec.DecodeError:
        return body
    if not priority and _FIELD in fields:
        return body
    return msgspec.json.encode({**fields, _FIELD: order * priority})


class EnginePriorities:
    """In which order each engine takes requests, as its driver finds out.

    The first request to an engine has it asked and does not wait for the answer; until then, the engine counts as one
    that knows no priorities. ``specs``: of launched engines, by backend.
    """

    def __init__(self, drivers: Mapping[str, Driver], specs: Mapping[str, LaunchSpec]) -> None:
        self._drivers = drivers
        self._specs = specs
        self._known: dict[str, _Known] = {}

    def order(self, upstream: Upstream) -> int:
        """``Driver.priority_order`` of the engine behind ``upstream``; an engine that was started again is another."""
        known = self._known.get(upstream.name)
        if known is None or known.connections is not upstream.pool:
            known = self._known[upstream.name] = _Known(upstream.pool)
        if known.asking is None and monotonic() >= known.until:
            known.asking = asyncio.ensure_future(self._ask(upstream, known))
        return known.order

    async def _ask(self, upstream: Upstream, known: _Known) -> None:
        name = upstream.name
        try:
            client = Client(upstream, _TIMEOUT_S)
            known.order = await self._drivers[name].priority_order(client, self._specs.get(name))
        except Exception as error:
            _log.debug("Backend %s does not say whether it knows priorities: %s", name, error or type(error).__name__)
            known.order = 0
        known.until = monotonic() + _BELIEVED_S
        known.asking = None


class _Known:
    """What one engine has said. ``connections``: the pool of its process."""

    def __init__(self, connections: object) -> None:
        self.connections = connections
        self.order = 0
        self.until = 0.0
        self.asking: asyncio.Task[None] | None = None
