"""Pages of the owner on a worker's connection: ASGI messages go to and fro, one answer piece at a time."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from enginehouse.http.application import refuse
from enginehouse.http.relayed_paths import RelayedPaths
from enginehouse.processes.workers.channel import Send as Call
from enginehouse.relay.relay import shutting_down

_log = logging.getLogger(__name__)

_CARRIED: Final = (
    "type",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
    "client",
    "server",
    "subprotocols",
)


class OwnerPages:
    """The worker's side, an ASGI application: each request for a page of the owner is answered there."""

    def __init__(self, send: Call, paths: RelayedPaths) -> None:
        self._send = send
        self._paths = paths
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[dict[str, Any] | None]] = {}
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        number = next(self._numbers)
        answers = self._answers[number] = asyncio.Queue()
        if self._gone:
            answers.put_nowait(None)
        self._send(PageAnswers.page_asked, number, {key: scope[key] for key in _CARRIED if key in scope})
        reading = asyncio.ensure_future(self._read(number, receive))
        begun = False
        try:
            while (message := await answers.get()) is not None:
                begun = True
                await send(message)
                self._send(PageAnswers.page_taken, number)
        finally:
            reading.cancel()
            del self._answers[number]
            self._send(PageAnswers.page_in, number, {"type": "http.disconnect"})
        if not begun and scope["type"] == "http":
            await refuse(scope, receive, send, shutting_down(), self._paths)

    def page_out(self, page: int, message: dict[str, Any] | None) -> None:
        """Send the client of a page an ASGI message; ``None`` after the last one."""
        answers = self._answers.get(page)
        if answers is not None:
            answers.put_nowait(message)

    def lost(self) -> None:
        self._gone = True
        for answers in self._answers.values():
            answers.put_nowait(None)

    async def _read(self, number: int, receive: Receive) -> None:
        while True:
            message = await receive()
            self._send(PageAnswers.page_in, number, dict(message))
            if message["type"] in ("http.disconnect", "websocket.disconnect"):
                return


class PageAnswers:
    """The owner's side: runs ``application`` for the pages that one worker asks for, each after ``prepare``."""

    def __init__(
        self,
        application: ASGIApp,
        send: Call,
        prepare: Callable[[str], Awaitable[None]],
    ) -> None:
        self._application = application
        self._send = send
        self._prepare = prepare
        self._pages: dict[int, _Answering] = {}

    def page_asked(self, page: int, scope: dict[str, Any]) -> None:
        """Answer a request for a page."""
        scope["headers"] = [(name, value) for name, value in scope["headers"]]
        for address in ("client", "server"):
            scope[address] = tuple(scope[address]) if scope.get(address) else None
        scope["asgi"] = {"version": "3.0", "spec_version": "2.3"}
        scope["state"] = {}
        self._pages[page] = answering = _Answering(page, self._send)
        answering.task = asyncio.ensure_future(self._answer(answering, scope))

    def page_in(self, page: int, message: dict[str, Any]) -> None:
        """Take an ASGI message of the client."""
        if (answering := self._pages.get(page)) is not None:
            answering.messages.put_nowait(message)
            if message["type"] == "http.disconnect":
                answering.gone = True
                answering.taken.set()

    def page_taken(self, page: int) -> None:
        """The client has taken the last piece."""
        if (answering := self._pages.get(page)) is not None:
            answering.taken.set()

    def close(self) -> None:
        for page in [*self._pages.values()]:
            if page.task is not None:
                page.task.cancel()

    async def _answer(self, page: _Answering, scope: MutableMapping[str, Any]) -> None:
        try:
            with suppress(asyncio.CancelledError):
                await self._prepare(scope["path"])
                await self._application(scope, page.receive, page.send)
        except Exception:
            _log.exception("A page failed")
        finally:
            self._pages.pop(page.number, None)
            self._send(OwnerPages.page_out, page.number, None)


class _Answering:
    """One page that is being answered."""

    def __init__(self, number: int, send: Call) -> None:
        self.number = number
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.taken = asyncio.Event()
        self.gone = False
        self.task: asyncio.Task[None] | None = None
        self._send = send

    async def receive(self) -> dict[str, Any]:
        return await self.messages.get()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self.gone:  # nobody takes it
            return
        self.taken.clear()
        self._send(OwnerPages.page_out, self.number, dict(message))
        await self.taken.wait()
