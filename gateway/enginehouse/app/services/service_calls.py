"""Calls services, and contains their failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, NamedTuple

from starlette.routing import BaseRoute

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import EnginehouseError, RequestError
from enginehouse.domain.foreign import describe
from enginehouse.domain.plugin_id import PluginId
from enginehouse.telemetry.plugin_failures import await_plugin, finished, plugin_errors

_STOP_S = 5.0
_HUNG_S = 60.0
"""A call that has not returned for so long is shown as hung."""


class ServicePages(NamedTuple):
    """The routes of all services, always the same lists: for operators, and for everyone with a key."""

    operators: list[BaseRoute]
    callers: list[BaseRoute]


class ServiceCalls:
    """Calls a service, and contains its failures. Its routes are added to the ``pages`` with which it starts.

    ``state`` and ``error`` are what ``/api/status`` shows. It does not know the service, which refers to it: a gateway
    that is only built must leave no cycle.
    """

    def __init__(self, plugin: PluginId) -> None:
        self.type = plugin.type
        self.state, self.error = "starting", ""
        self.pages = ServicePages([], [])
        self._plugin = plugin
        self._own_pages: list[tuple[list[BaseRoute], BaseRoute]] = []
        self._tasks = BackgroundTasks()
        self._begun: dict[object, float] = {}

    @property
    def hang(self) -> bool:
        """Whether a call has not returned for long."""
        return any(_now() - began > _HUNG_S for began in self._begun.values())

    def every(self, seconds: float, call: Callable[[], Awaitable[None] | None]) -> None:
        """Call it every so many seconds. A call that takes longer delays the next one."""
        if not isinstance(seconds, (int, float)) or seconds <= 0:
            raise ValueError(f"every takes a number of seconds, more than 0, got {seconds!r}")
        self._tasks.start(self._repeat(seconds, call))

    def add_pages(self, routes: Sequence[BaseRoute], *, for_callers: bool = False) -> None:
        """Answer these routes until ``end``. Raises ``TypeError`` for anything else, which would fail all pages."""
        pages, added = self.pages.callers if for_callers else self.pages.operators, [*routes]
        for each in added:
            if not isinstance(each, BaseRoute):
                raise TypeError(f"pages.add takes Starlette routes, got {each!r}")
        self._own_pages += [(pages, route) for route in added]
        pages += added

    def start(
        self, call: Callable[[], Awaitable[None] | None], after: Collection[asyncio.Task[None]] = ()
    ) -> asyncio.Task[None]:
        """Begin with this call, once ``after`` are done; the task ends when it has returned, or failed."""
        return self._tasks.start(self._start(call, after))

    def ask(self, call: Callable[[], Any]) -> Any:
        """The result of a call; ``None`` if it fails, which is logged and shown in the status."""
        try:
            with plugin_errors(self._plugin):
                return call()
        except RequestError as error:
            self.error = _text(error)
            return None

    def end(self, call: Callable[[], Awaitable[None] | None]) -> asyncio.Task[None]:
        """Call nothing any more but this; the task ends when it has returned, failed, or taken too long."""
        self._tasks.cancel()
        self.state = "stopped"
        for pages, route in self._own_pages:
            pages.remove(route)
        self._own_pages.clear()
        return asyncio.ensure_future(self._end(self.ask(call)))

    async def _start(self, call: Callable[[], Awaitable[None] | None], after: Collection[asyncio.Task[None]]) -> None:
        if after:
            await asyncio.wait(after)
        self.state = "running" if await self._succeeds(call) else "failed"

    async def _repeat(self, seconds: float, call: Callable[[], Awaitable[None] | None]) -> None:
        began = _now()
        while True:
            await asyncio.sleep(max(0.0, began + seconds - _now()))
            began = _now()
            if await self._succeeds(call):
                self.error = ""

    async def _succeeds(self, call: Callable[[], Awaitable[None] | None]) -> bool:
        this = object()
        self._begun[this] = _now()
        try:
            await await_plugin(self._plugin, finished, call)
        except EnginehouseError as error:
            self.error = _text(error)
            return False
        finally:
            del self._begun[this]
        return True

    async def _end(self, stopping: Awaitable[None] | None) -> None:
        if stopping is not None:
            try:
                await run_within(_STOP_S, await_plugin(self._plugin, finished, lambda: stopping))
            except (EnginehouseError, TimeoutError) as error:
                self.error = _text(error)


def _text(error: BaseException) -> str:
    """``error`` for people: what the plugin raised, if that is known."""
    return describe(error.__cause__ or error)


def _now() -> float:
    return asyncio.get_running_loop().time()
