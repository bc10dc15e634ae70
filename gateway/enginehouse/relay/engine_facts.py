"""Facts that engines report about themselves and that their requests depend on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from enginehouse.domain.errors import EnginehouseError
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import SupportsFigures, ThinkingFields
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_log = logging.getLogger(__name__)

PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses"})
"""The endpoints whose requests have a priority."""
_FIELD = "priority"
_TIMEOUT_S = 5.0
_USUAL = ThinkingFields()
_BELIEVED_S = 60.0  # behind an address of the configuration, somebody may start an engine with other settings
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def with_priority(body: bytes, order: int, priority: int) -> bytes:
    """``body`` with the ``priority`` of its key, for an engine with this ``SupportsFigures.priority_order``.

    A key without one leaves the client's own.
    """
    try:
        fields = _fields(body)
    except (ValueError, RecursionError):
        return body
    if not priority and _FIELD in fields:
        return body
    # 0 too, which is vLLM's default: SGLang takes requests without the field last (_set_or_validate_priority in
    # https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/managers/scheduler.py)
    return msgspec.json.encode({**fields, _FIELD: order * priority})


class EngineFacts:
    """The facts that each engine has reported, until it is started again.

    ``drivers``: of every backend. ``specs``: of launched engines, by backend. ``now``: a clock in seconds.
    """

    def __init__(
        self, drivers: Mapping[str, DriverSupport], specs: Mapping[str, LaunchSpec], now: Callable[[], float]
    ) -> None:
        self._now = now
        self._drivers = drivers
        self._specs = specs
        self._said: dict[str, _Said] = {}
        self._thinking = {name: each.driver.thinking(specs.get(name)) for name, each in drivers.items()}

    def thinking(self, backend: str) -> ThinkingFields:
        """``Driver.thinking`` of the engine of ``backend``."""
        return self._thinking.get(backend, _USUAL)

    def priority_order(self, upstream: Upstream) -> int:
        """``SupportsFigures.priority_order`` of the engine behind ``upstream``; 0 until it has answered.

        The first request to an engine starts the question, and does not wait for the answer.
        """
        said = self._of(upstream)
        if self._now() < said.order_until:
            return said.order
        driver = self._drivers.get(upstream.name)
        if driver is None:  # a reload has removed the backend while a request was on its way there
            return 0
        if said.asking is None:
            said.asking = asyncio.ensure_future(self._ask_order(driver.figures, upstream, said))
        return said.order

    def _of(self, upstream: Upstream) -> _Said:
        said = self._said.get(upstream.name)
        if said is None or said.connections is not upstream.pool:
            said = self._said[upstream.name] = _Said(upstream.pool)
        return said

    async def _ask_order(self, driver: SupportsFigures, upstream: Upstream, said: _Said) -> None:
        name = upstream.name
        try:
            said.order = await driver.priority_order(Client(upstream, _TIMEOUT_S), self._specs.get(name))
        except EnginehouseError as error:
            _log.debug("Backend %s does not say whether it knows priorities: %s", name, error or type(error).__name__)
            said.order = 0
        finally:
            said.order_until = self._now() + _BELIEVED_S
            said.asking = None


class _Said:
    """The facts that one engine has reported. ``connections``: the pool of its process."""

    def __init__(self, connections: object) -> None:
        self.connections = connections
        self.order = 0
        self.order_until = 0.0
        self.asking: asyncio.Task[None] | None = None
