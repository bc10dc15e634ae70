"""A request in a protocol that its engines may not speak."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from enginehouse.domain.errors import InvalidRequest, RequestError
from enginehouse.domain.request import Headers
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.protocols import Forwarded, Native, Protocol, ProtocolRequest, Translation
from enginehouse.relay.context import RelayContext
from enginehouse.relay.middleware import Opening
from enginehouse.relay.protocols.translating_writer import TranslatingWriter, known
from enginehouse.relay.protocols.turns import TranslationTurns
from enginehouse.relay.protocols.watching_writer import WatchingWriter
from enginehouse.relay.request import Request
from enginehouse.relay.response_writer import OpenExchange, ResponseWriter
from enginehouse.relay.upstream.client import client_of
from enginehouse.routing.body.read import model_named, plain_json

Open = Callable[[ResponseWriter, Opening], OpenExchange]
Asked = Translation | Forwarded | Native
T = TypeVar("T")


class TranslatedExchange(OpenExchange):
    """Opens the exchange with the engine when the body says whether it must be translated.

    No other process continues its stream, because only this one knows what it has translated.
    """

    def __init__(
        self,
        context: RelayContext,
        writer: ResponseWriter,
        path: str,
        headers: Headers,
        protocol: Protocol,
        open: Open,
        turns: TranslationTurns,
    ) -> None:
        self._context = context
        self._writer = writer
        self._path = path
        self._headers = headers
        self._protocol = protocol
        self._open = open
        self._exchange: OpenExchange | None = None
        self._translating = TranslatingWriter(writer, protocol, context.engine_memory, turns)
        self._waiting: asyncio.Task[None] | None = None

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        if self._exchange is not None:
            return
        try:
            request = self._request(body, caller)
        except RequestError as error:
            self._open_refused().cancel(error)
            return
        if isinstance(request, Awaitable):
            self._waiting = asyncio.ensure_future(self._begin_later(request, body, caller))
        else:
            self._begin(request, body, caller)

    def _request(self, body: bytes, caller: AdmittedCaller | None) -> Asked | Awaitable[Asked]:
        protocol, backends = self._protocol, self._native_backends(body)
        if backends:
            return self._read(protocol.native, body, caller, backends)
        try:
            return self._read(protocol.translate, body, caller, ())
        except InvalidRequest:
            if (whole := plain_json(self._headers, body)) is None:
                raise
        return self._request(whole, caller)

    async def _begin_later(self, awaited: Awaitable[Asked], body: bytes, caller: AdmittedCaller | None) -> None:
        try:
            request = await awaited
            self._waiting = None
            self._begin(request, body, caller)
        except Exception as error:
            self._waiting = None
            self._open_refused().cancel(known(error, self._protocol))

    def _begin(self, request: Asked, body: bytes, caller: AdmittedCaller | None) -> None:
        if isinstance(request, Native):
            self._begin_native(request, body, caller)
            return
        writer, translation = self._writer, None
        if not isinstance(request, Forwarded):
            self._translating.translation = translation = request
            writer = self._translating
        self._exchange = exchange = self._open(
            writer, Opening(request.path, self._headers, self._protocol.name, translation)
        )
        if writer is self._translating:
            self._translating.exchange = exchange
        exchange.begin(request.body, caller)

    def _begin_native(self, request: Native, body: bytes, caller: AdmittedCaller | None) -> None:
        writer, name = self._writer, self._protocol.name
        watching = None if request.watch is None else WatchingWriter(writer, request.watch, self._protocol)
        self._exchange = exchange = self._open(watching or writer, Opening(self._path, self._headers, name))
        if isinstance(exchange, Request):
            exchange.job.backend = request.backend
            if watching is not None:
                watching.request = exchange
        exchange.begin(body, caller)

    def _open_refused(self) -> OpenExchange:
        """The exchange of a request that no engine gets: the log has it nevertheless."""
        self._stop_waiting()
        if self._exchange is None:
            self._exchange = self._open(self._translating, Opening(self._path, self._headers, self._protocol.name))
        return self._exchange

    def _stop_waiting(self) -> bool:
        """Wait no more for a translation; whether that was so."""
        waiting, self._waiting = self._waiting, None
        return waiting is not None and waiting.cancel()

    def cancel(self, error: RequestError | None = None) -> None:
        self._open_refused().cancel(error)

    def client_disconnected(self) -> None:
        self._open_refused().client_disconnected()
        self._translating.release()

    def withdraw(self) -> bool:
        if self._stop_waiting():
            return True
        withdrawn = self._exchange is not None and self._exchange.withdraw()
        if withdrawn:
            self._translating.release()
        return withdrawn

    def pause(self) -> None:
        if self._translating.exchange is not None:
            self._translating.pause()
        elif self._exchange is not None:
            self._exchange.pause()

    def resume(self) -> None:
        if self._translating.exchange is not None:
            self._translating.resume()
        elif self._exchange is not None:
            self._exchange.resume()

    def _native_backends(self, body: bytes) -> Sequence[str]:
        """The backends that get the request as it is; none if it must be translated."""
        if self._context.middleware is not None:  # they read OpenAI's requests and answers
            return ()
        context, model = self._context, model_named(body)
        if model is None:
            return ()  # the protocol refuses it in its own words
        return context.endpoints.native(self._path, model, context.fleet.snapshot)

    def _read(
        self, read: Callable[[ProtocolRequest], T], body: bytes, caller: AdmittedCaller | None, backends: Sequence[str]
    ) -> T:
        """What the protocol makes of the request. Raises ``RequestError``."""
        context = self._context
        snapshot, name = context.fleet.snapshot, "" if caller is None else caller.name
        try:
            knows, engine = context.endpoints.knows, partial(client_of, context.upstreams)
            return read(ProtocolRequest(self._path, body, lambda name: knows(name, snapshot), name, backends, engine))
        except Exception as error:
            raise known(error, self._protocol) from None
