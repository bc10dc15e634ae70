"""``GET /metrics/engines``: the metrics of all engines as one page, with a label ``backend``.

The metrics of a model that has a page of its own at its engine also get a label ``model``.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from enginehouse import RequestError
from enginehouse.pages import PageFacts
from enginehouse_metrics.merged_pages import merged
from enginehouse_metrics.page import shown_facts

_TIMEOUT_S = 5.0
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

    def __init__(self) -> None:
        self._asking: asyncio.Task[bytes] | None = None
        self._good_until = 0.0
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def page(self, request: Request) -> Response:
        facts, asking = shown_facts(request), self._asking
        if asking is None or (asking.done() and asyncio.get_running_loop().time() >= self._good_until):
            asking = self._asking = asyncio.ensure_future(self._ask_all(facts))
        return Response(await asyncio.shield(asking), media_type=CONTENT_TYPE_LATEST)

    async def _ask_all(self, facts: PageFacts) -> bytes:
        now = asyncio.get_running_loop().time
        began, room = now(), _Room(_LARGEST)
        pages = [MetricsPage(*each) for each in facts.engine_metrics()]
        texts = await asyncio.gather(*(self._ask(facts, page, room) for page in pages))
        found = [(page.labels, text) for page, text in zip(pages, texts, strict=True) if text]
        answer = await asyncio.to_thread(merged, found)  # engines have thousands of lines
        self._good_until = now() + max(_SHORTEST_S, _REST * (now() - began))
        return answer

    async def _ask(self, facts: PageFacts, page: MetricsPage, room: _Room) -> str:
        """The page; empty without one, and if it finds no room."""
        async with self._turns:
            try:
                answer = await facts.engine(page.backend, _TIMEOUT_S, _LARGEST_PAGE).request("GET", page.path)
            except RequestError:
                return ""
        text = answer.body.decode(errors="replace") if answer.status == 200 else ""
        return text if room.take(len(answer.body)) else ""


class _Room:
    """The bytes that pages may still have."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True
