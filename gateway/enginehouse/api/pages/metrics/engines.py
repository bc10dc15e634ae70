"""``GET /metrics/engines``: the metrics of all engines as one page, with a label ``backend``.

The metrics of a model that has a page of its own at its engine also get a label ``model``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import quote

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from enginehouse.api.pages.metrics.merged_pages import merged
from enginehouse.domain.errors import RequestError
from enginehouse.relay.context import RelayContext
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_TIMEOUT_S = 5.0
_OF_MODEL = "{model}"
_LARGEST_PAGE: Final = 1 << 20
_LARGEST: Final = 16 << 20
"""In bytes: of all pages together. Pages beyond it are left out."""
_AT_ONCE: Final = 16
_SHORTEST_S: Final = 1.0
_REST: Final = 4
"""An answer is good for a second, and for so many times as long as it took: anyone may ask a gateway without keys."""


class MetricsPage(NamedTuple):
    """A page of an engine's metrics; ``model`` is empty if it is about all of its models."""

    backend: str
    path: str
    model: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the gateway adds."""
        return {"backend": self.backend} | ({"model": self.model} if self.model else {})


class EngineMetrics:
    """Asks every engine that can be reached for its ``/metrics``. Engines that have no such page are left out.

    Requests that come while the engines are being asked, and soon after, share the answer.
    """

    def __init__(self, context: RelayContext) -> None:
        self._context = context
        self._asking: asyncio.Task[bytes] | None = None
        self._good_until = 0.0
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def page(self, request: Request) -> Response:
        asking = self._asking
        if asking is None or (asking.done() and self._context.clock.now() >= self._good_until):
            asking = self._asking = asyncio.ensure_future(self._ask_all())
        return Response(await asyncio.shield(asking), media_type=CONTENT_TYPE_LATEST)

    async def _ask_all(self) -> bytes:
        began = self._context.clock.now()
        room = _Room(_LARGEST)
        pages = list(self._pages())
        texts = await asyncio.gather(*(self._ask(upstream, page.path, room) for upstream, page in pages))
        found = [(page.labels, text) for (_, page), text in zip(pages, texts, strict=True) if text]
        answer = await asyncio.to_thread(merged, found)  # engines have thousands of lines
        now = self._context.clock.now()
        self._good_until = now + max(_SHORTEST_S, _REST * (now - began))
        return answer

    async def _ask(self, upstream: Upstream, path: str, room: _Room) -> str:
        """The page; empty without one, and if it finds no room."""
        async with self._turns:
            try:
                answer = await Client(upstream, _TIMEOUT_S, _LARGEST_PAGE).request("GET", path)
            except RequestError:
                return ""
        text = answer.body.decode(errors="replace") if answer.status == 200 else ""
        return text if room.take(len(answer.body)) else ""

    def _pages(self) -> Iterator[tuple[Upstream, MetricsPage]]:
        context = self._context
        for backend, upstream in context.upstreams.items():
            path = context.drivers[backend].figures.metrics_path
            if _OF_MODEL in path:
                for model in context.fleet.snapshot.ready_on(backend):
                    yield upstream, MetricsPage(backend, path.replace(_OF_MODEL, quote(model, safe="")), model)
            elif upstream.pool.origin.host:
                yield upstream, MetricsPage(backend, path)


class _Room:
    """The bytes that pages may still have."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True
