"""What all connections of a server share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.types import ASGIApp

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.domain.errors import NotFound, RequestError
from enginehouse.domain.request import Headers
from enginehouse.http.admission import Admission, BodyShare
from enginehouse.http.body_stream import BodyStream
from enginehouse.http.cross_origin import Cors
from enginehouse.http.inbound import Inbound, last_response
from enginehouse.http.page_exchange import PageExchange, address_of, page_scope, read_target
from enginehouse.http.relayed_paths import RelayedPaths, check_path
from enginehouse.http.uploads import UploadedForm
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.jobs.engine_job import EngineCall
from enginehouse.relay.web_socket_server import Handshake
from enginehouse.telemetry.plugin_failures import log_plugin_failure

_log = logging.getLogger(__name__)

Check = Callable[[float], None]
"""Called with the loop's time, in seconds."""


class HttpServer:
    """Decides who answers a request: an engine, as ``paths`` say, or else ``application``.

    ``connections`` and ``tasks`` are what uvicorn's server waits for when it stops: the open connections and what
    is done for them.
    """

    def __init__(
        self,
        application: ASGIApp,
        admission: Admission,
        paths: RelayedPaths,
        cors: Cors,
        connections: set[Any],
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._application = application
        self.admission = admission
        self._paths = paths
        self.cors = cors
        self.connections = connections
        self.tasks = tasks
        self._checks: dict[Check, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def opened(
        self, connection: object, check: Check, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> str:
        """A client has connected: call ``check`` every second. Returns its address; empty on a Unix socket."""
        self.connections.add(connection)
        self._checks[check] = None
        if self._timer is None:
            self._timer = loop.call_later(1, self._check_all, loop)
        address = address_of(transport, "peername")
        return address[0] if address is not None else ""

    def closed(self, connection: object, check: Check) -> None:
        """The connection is lost, or no longer HTTP."""
        self.connections.discard(connection)
        self._checks.pop(check, None)

    def _check_all(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let connections find out that their clients have been silent for too long.

        One timer for all of them is cheaper than one for every answer. A check that raises does not stop it.
        """
        now, failure = loop.time(), None
        for check in list(self._checks):  # one that closes its connection discards itself
            try:
                check(now)
            except Exception as error:  # noqa: PERF203 - the others must not wait for ever
                failure = error
        self._timer = loop.call_later(1, self._check_all, loop) if self._checks else None
        if failure is not None:
            _log.error("A client's connection could not be checked", exc_info=failure)

    def open(
        self,
        inbound: Inbound,
        stream: BodyStream,
        method: bytes,
        url: bytes,
        version: str,
        transport: BatchedTransport,
    ) -> None:
        """Decide who answers ``inbound``, whose head has come; ``stream`` is its body if it is read while it arrives.

        Raises ``InvalidRequest`` for a target that is no URL.
        """
        target = read_target(url)
        inbound.path, headers = target.path, inbound.headers
        inbound.head_first = True
        try:
            relayed = self._paths.find(method, target, headers)
            if relayed is None:
                scope = page_scope("http", method, target, version, headers, transport)
                request_id, memory = self.admission.relay.request_id(headers), self.admission.body_memory
                page = PageExchange(inbound, stream, scope, request_id, self._application, memory, self.tasks)
                inbound.read_from(stream, lambda *_: page, lambda _: page.begin(b""))
                return
            inbound.opens, inbound.lines = relayed.opens, self.cors.lines(headers)
            inbound.caller = relayed.admit(headers)
            if relayed.uploads:
                form = UploadedForm(inbound, stream, self.admission, self.tasks)
                inbound.read_from(stream, form.open, form.begin)
        except RequestError as error:
            inbound.refuse(error)

    def last_response(self, url: bytes, error: RequestError) -> bytes:
        """The whole response to a request for ``url``, as far as that is known, after which the connection closes."""
        path = url.partition(b"?")[0].decode("latin-1")
        body = self._paths.error(path, error.status, error.envelope())
        return last_response(error.status, body, self.admission.date())

    def open_web_socket(self, transport: asyncio.Transport, url: bytes, headers: Headers, behind: bytes) -> None:
        """Hand a connection whose client asks for a WebSocket to the plugin that serves these, or refuse it.

        ``behind``: what the client sent after the handshake.
        """
        admission = self.admission
        found = admission.relay.context.web_sockets
        if found is None:
            error = NotFound("No enabled plugin serves WebSockets: enable the plugin 'web_sockets'")
            transport.write(self.last_response(url, error))
            transport.close()
            return
        target = read_target(url)
        call, engine = self._paths.web_socket(target), None
        plugin, server = found
        scope = page_scope("websocket", b"GET", target, "1.1", headers, transport)
        if call is not None:
            address = scope["client"][0] if scope["client"] else ""
            enter = partial(self._enter, call)
            engine = partial(admission.relay.web_socket, target.path, headers, call, enter, plugin, address)
        memory = BodyShare(admission.body_memory), admission.relay.context.engine_memory
        connection = transport, url, headers, behind, admission.max_body, self.connections, self.tasks
        try:
            server.open(Handshake(*connection, *memory, engine, self._application, scope))
        except BaseException as failure:
            log_plugin_failure(plugin, "failed to open a WebSocket", failure)
            transport.abort()

    def _enter(self, call: EngineCall, headers: Headers) -> AdmittedCaller | None:
        """Admit the client of a WebSocket. Raises ``RequestError``."""
        caller = self.admission.admit_web_socket(headers)
        check_path(call.target)
        return caller
