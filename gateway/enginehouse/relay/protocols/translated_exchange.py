"""A request in a protocol that its engines may not speak."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from enginehouse.domain.errors import InvalidRequest, RequestError
from enginehouse.domain.request import Headers
from enginehouse.interfaces.protocols import Forwarded, Protocol, ProtocolRequest, Translation
from enginehouse.relay.context import RelayContext
from enginehouse.relay.door import AdmittedCaller, Door, OpenExchange
from enginehouse.relay.protocols.translating_door import TranslatingDoor, known
from enginehouse.relay.protocols.turns import TranslationTurns
from enginehouse.routing.body.one_model import model_named
from enginehouse.routing.body.read import plain_json

Open = Callable[[Door, str, Headers, float | None, str], OpenExchange]
"""Opens an exchange of a path, whose engine may be kept for so many idle seconds, for a client of a protocol."""


class TranslatedExchange(OpenExchange):
    """Opens the exchange with the engine when the body says whether it must be translated.

    No other process continues its stream, because only this one knows what it has translated.
    """

    def __init__(
        self,
        context: RelayContext,
        door: Door,
        path: str,
        headers: Headers,
        protocol: Protocol,
        open: Open,
        turns: TranslationTurns,
    ) -> None:
        self._context = context
        self._door = door
        self._path = path
        self._headers = headers
        self._protocol = protocol
        self._open = open
        self._exchange: OpenExchange | None = None
        self._translating = TranslatingDoor(door, protocol, context.engine_memory, turns)
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
            self._waiting = asyncio.ensure_future(self._begin_later(request, caller))
        else:
            self._begin(request, caller)

    def _request(self, body: bytes, caller: AdmittedCaller | None) -> Translation | Forwarded | Awaitable[Translation]:
        if self._is_native(body):
            return Forwarded(self._path, body)
        try:
            return self._translate(body, caller)
        except InvalidRequest:
            if (whole := plain_json(self._headers, body)) is None:
                raise
        return self._request(whole, caller)

    async def _begin_later(self, translation: Awaitable[Translation], caller: AdmittedCaller | None) -> None:
        try:
            request = await translation
            self._waiting = None
            self._begin(request, caller)
        except Exception as error:
            self._waiting = None
            self._open_refused().cancel(known(error, self._protocol))

    def _begin(self, request: Translation | Forwarded, caller: AdmittedCaller | None) -> None:
        door, keep_alive = self._door, None
        if not isinstance(request, Forwarded):
            self._translating.translation = request
            door, keep_alive = self._translating, request.keep_alive
        self._exchange = exchange = self._open(door, request.path, self._headers, keep_alive, self._protocol.name)
        if door is self._translating:
            self._translating.exchange = exchange
        exchange.begin(request.body, caller)

    def _open_refused(self) -> OpenExchange:
        """The exchange of a request that no engine gets: the log has it nevertheless."""
        self._stop_waiting()
        if self._exchange is None:
            self._exchange = self._open(self._translating, self._path, self._headers, None, self._protocol.name)
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

    def _is_native(self, body: bytes) -> bool:
        if self._context.interceptors is not None:  # they read OpenAI's requests and answers
            return False
        context, model = self._context, model_named(body)
        if model is None:
            return False  # the protocol refuses it in its own words
        return context.endpoints.are_native(self._path, model, context.fleet.snapshot)

    def _translate(
        self, body: bytes, caller: AdmittedCaller | None
    ) -> Translation | Forwarded | Awaitable[Translation]:
        context = self._context
        snapshot, name = context.fleet.snapshot, "" if caller is None else caller.name
        request = ProtocolRequest(self._path, body, lambda name: context.endpoints.knows(name, snapshot), name)
        try:
            return self._protocol.translate(request)
        except Exception as error:
            raise known(error, self._protocol) from None
