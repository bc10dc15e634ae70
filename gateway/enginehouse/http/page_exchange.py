"""Lets an ASGI application answer a request: the gateway's pages, and those of plugins."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message, Scope

from enginehouse.domain.errors import InvalidRequest, RequestError
from enginehouse.domain.request import Headers
from enginehouse.http.admission import BodyMemory, BodyShare
from enginehouse.http.body_stream import BodyStream
from enginehouse.http.inbound import Inbound
from enginehouse.http.relayed_paths import Target
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.response_writer import OpenExchange

_log = logging.getLogger(__name__)

_BAD_NAME: Final = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection", b"date"})
"""Headers of an answer that the connection writes itself."""
_FAILED: Final = (
    b'{"error":{"message":"Internal error; see the gateway\'s log","type":"server_error","param":null,'
    b'"code":"internal_error","details":{}}}'
)


def read_target(url: bytes) -> Target:
    """The target of a request line. Raises ``InvalidRequest``."""
    try:
        parsed = httptools.parse_url(url)
        return Target(unquote(parsed.path.decode("ascii")), parsed.path, parsed.query or b"")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError, AttributeError):
        raise InvalidRequest("The target of the request line is not a valid URL") from None


def page_scope(type: str, method: bytes, target: Target, version: str, headers: Headers, transport: Any) -> Scope:
    """The ASGI scope of a request (ASGI 3.0, HTTP and WebSocket 2.3); ``type`` is ``http`` or ``websocket``."""
    secure = transport.get_extra_info("sslcontext") is not None
    schemes = ("ws", "wss") if type == "websocket" else ("http", "https")
    return {
        "type": type,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "method": method.decode("ascii"),
        "scheme": schemes[secure],
        "path": target.path,
        "raw_path": target.raw_path,
        "query_string": target.query,
        "root_path": "",
        "headers": headers,
        "client": address_of(transport, "peername"),
        "server": address_of(transport, "sockname"),
        "state": {},
    }


def address_of(transport: Any, side: str) -> tuple[str, int] | None:
    """The address and port of the ``peername`` or the ``sockname``; ``None`` on a Unix socket."""
    name = transport.get_extra_info(side)
    return (str(name[0]), int(name[1])) if isinstance(name, (tuple, list)) and len(name) >= 2 else None


class PageExchange(OpenExchange):
    """One request that ``application`` answers, in a task among ``tasks``.

    The answer has the header ``x-request-id`` with ``request_id``, unless the application gives it one. What the
    application reads of the body counts as memory of bodies until the answer is complete.
    """

    def __init__(
        self,
        inbound: Inbound,
        stream: BodyStream,
        scope: Scope,
        request_id: bytes,
        application: ASGIApp,
        memory: BodyMemory,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._inbound = inbound
        self._stream = stream
        self._scope = scope
        self._request_id = request_id
        self._application = application
        self._share = BodyShare(memory)
        self._tasks = tasks
        self._started = self._complete = self._gone = False
        self._left: int | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        task = asyncio.get_running_loop().create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self, error: RequestError | None = None) -> None:
        self._stream.disconnect()

    def withdraw(self) -> bool:
        return False

    def client_disconnected(self) -> None:
        self._gone = True
        self._writable.set()

    def pause(self) -> None:
        self._writable.clear()

    def resume(self) -> None:
        self._writable.set()

    async def _run(self) -> None:
        try:
            await self._application(self._scope, self._receive, self._send)
        except asyncio.CancelledError:  # the server stops, and waits no longer
            self._inbound.abort()
            raise
        except BaseException:
            _log.exception("A page failed")
            if not self._started and not self._gone:
                lines = b"content-type: application/json\r\nx-request-id: %s\r\n" % self._request_id
                self._inbound.answer(500, lines, _FAILED)
                self._complete = True
        finally:
            self._share.give_back()
            if not self._complete and not self._gone:
                self._inbound.abort()

    async def _receive(self) -> Message:
        if self._inbound.expects and not self._started:
            self._inbound.expects = False
            self._inbound.ask_for_body()
        received = None if self._complete else await self._stream.read()
        if received is None:
            return {"type": "http.disconnect"}
        piece, more = received
        self._share.take(len(piece))
        return {"type": "http.request", "body": piece, "more_body": more}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self._writable.wait()
        if self._gone:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._write(message.get("body", b""), message.get("more_body", False))

    def _start(self, status: int, headers: Any) -> None:
        if self._started:
            raise RuntimeError("The answer has begun already")
        lines, names = [], set()
        for name, value in headers:
            name = name.lower()
            names.add(name)
            if _BAD_NAME.search(name) or _BAD_VALUE.search(value):
                raise RuntimeError(f"The answer has an invalid header {name!r}")
            if name == b"content-length":
                self._left = int(value)
            elif name == b"connection":
                if b"close" in [token.strip() for token in value.lower().split(b",")]:
                    self._inbound.keep_alive = False
            elif name not in _FRAMING:
                lines.append(b"%s: %s\r\n" % (name, value))
        if b"x-request-id" not in names:
            lines.append(b"x-request-id: %s\r\n" % self._request_id)
        self._started = True
        self._inbound.start(status, b"".join(lines), self._left)
        if self._scope["method"] == "HEAD":
            self._left = None

    def _write(self, body: bytes, more: bool) -> None:
        if not self._started or self._complete:
            raise RuntimeError("A piece of an answer needs a head before it, and no end")
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("The body of the answer does not have the length that its head announces")
        if more:
            if body:
                self._inbound.write(bytes(body))
        else:
            self._complete = True
            self._inbound.finish(bytes(body))
