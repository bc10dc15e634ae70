"""Middleware of other plugins, whose failures end the request that they concern."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.domain.errors import RequestError
from enginehouse.domain.foreign import shown
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.tokens import Tokens
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.middleware import Middleware, MiddlewareFacts, Opening
from enginehouse.relay.response_writer import OpenExchange, PassingWriter, ResponseWriter
from enginehouse.telemetry.plugin_failures import log_plugin_failure, plugin_failed

Open = Callable[[ResponseWriter, Opening], OpenExchange]
T = TypeVar("T")


class GuardedMiddleware(Middleware):
    """Does as ``inner``, which is another plugin's."""

    def __init__(self, plugin: PluginId, inner: Middleware) -> None:
        self._plugin = plugin
        self._inner = inner

    def use(self, gateway: MiddlewareFacts) -> None:
        self._inner.use(gateway)

    def open(self, opening: Opening, writer: ResponseWriter, inner: Open) -> OpenExchange:
        exchange = _GuardedExchange(self._plugin, opening, writer, inner)
        exchange.open_by(self._inner)
        return exchange

    def check_time(self, now: float) -> None:
        try:
            self._inner.check_time(now)
        except BaseException as error:
            log_plugin_failure(self._plugin, "failed in check_time", error)


class _GuardedExchange(OpenExchange):
    """Does as the exchange that ``open_by`` gets. If that fails, the client gets an error that names the ``plugin``."""

    def __init__(self, plugin: PluginId, opening: Opening, writer: ResponseWriter, inner: Open) -> None:
        self._plugin = plugin
        self._opening = opening
        self._writer = writer
        self._inner = inner
        self._request: OpenExchange | None = None
        self._exchange: OpenExchange = self

    def open_by(self, middleware: Middleware) -> None:
        def open() -> None:
            self._exchange = middleware.open(self._opening, self._writer, self._open)

        self._try(open, None)

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        self._try(lambda: self._exchange.begin(body, caller), None)

    def cancel(self, error: RequestError | None = None) -> None:
        self._try(lambda: self._exchange.cancel(error), None)

    def client_disconnected(self) -> None:
        self._try(self._exchange.client_disconnected, None)

    def withdraw(self) -> bool:
        return self._try(self._exchange.withdraw, False)

    def pause(self) -> None:
        self._try(self._exchange.pause, None)

    def resume(self) -> None:
        self._try(self._exchange.resume, None)

    @property
    def backend(self) -> str:
        return self._request.backend if self._request is not None else ""

    def _open(self, writer: ResponseWriter, opening: Opening) -> OpenExchange:
        if writer is not self._writer:
            writer = _GuardedWriter(self._plugin, writer, self._writer)
        self._request = request = self._inner(writer, opening)
        return request

    def _try(self, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except BaseException as error:
            request = self._request if self._request is not None else self._open(self._writer, self._opening)
            self._exchange = request  # the plugin's is asked nothing more
            request.cancel(plugin_failed(self._plugin, error))
            return otherwise


class _GuardedWriter(PassingWriter):
    """Does as ``writer``, the plugin's. If that fails to break the connection of the ``client``, breaks it itself."""

    __slots__ = ("_client", "_plugin")

    def __init__(self, plugin: PluginId, writer: ResponseWriter, client: ResponseWriter) -> None:
        super().__init__(writer)
        self._plugin = plugin
        self._client = client

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        self._writer.answer(status, lines, body)

    def chunks_to(self) -> BatchedTransport | None:
        return self._writer.chunks_to()

    def counted(self) -> Tokens | None:
        try:
            said: object = self._writer.counted()
            if said is None or isinstance(said, Tokens):
                return said
            raise TypeError(f"it must count Tokens or None, got {shown(said)}")
        except BaseException as error:
            log_plugin_failure(self._plugin, "failed to count an answer", error)
            return None

    def abort(self) -> None:
        try:
            self._writer.abort()
        except BaseException as error:
            log_plugin_failure(self._plugin, "failed to break off an answer", error)
            self._client.abort()
