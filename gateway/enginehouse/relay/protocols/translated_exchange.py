"""A request in a protocol that its engines may not speak."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.interfaces.protocols import Protocol, ProtocolRequest, Translation
from enginehouse.relay.context import RelayContext
from enginehouse.relay.door import Caller, Door, OpenExchange
from enginehouse.relay.protocols.translating_door import TranslatingDoor, failed

Open = Callable[[Door, str, Headers], OpenExchange]


class _Asked(msgspec.Struct):
    model: str = ""


_model = msgspec.json.Decoder(_Asked).decode


class TranslatedExchange:
    """Opens the exchange with the engine when the body says whether it must be translated."""

    def __init__(
        self, context: RelayContext, door: Door, path: str, headers: Headers, protocol: Protocol, open: Open
    ) -> None:
        self._context = context
        self._door = door
        self._path = path
        self._headers = headers
        self._protocol = protocol
        self._open = open
        self._exchange: OpenExchange | None = None
        self._translating = TranslatingDoor(door, protocol, context.engine_memory)

    def begin(self, body: bytes, caller: Caller | None = None) -> None:
        if self._exchange is not None:
            return
        if self._is_native(body):
            self._exchange = exchange = self._open(self._door, self._path, self._headers)
            exchange.begin(body, caller)
            return
        door = self._translating
        try:
            door.translation = translation = self._translate(body)
        except RequestError as error:
            self._exchange = exchange = self._open(door, self._path, self._headers)
            exchange.cancel(error)
            return
        self._exchange = exchange = self._open(door, translation.path, self._headers)
        exchange.begin(translation.body, caller)

    def cancel(self, error: RequestError | None = None) -> None:
        if self._exchange is None:
            self._exchange = self._open(self._translating, self._path, self._headers)
        self._exchange.cancel(error)

    def client_disconnected(self) -> None:
        if self._exchange is None:  # its body never came; the log has it nevertheless
            self._exchange = self._open(self._translating, self._path, self._headers)
        self._exchange.client_disconnected()
        self._translating.release()

    def pause(self) -> None:
        if self._exchange is not None:
            self._exchange.pause()

    def resume(self) -> None:
        if self._exchange is not None:
            self._exchange.resume()

    def _is_native(self, body: bytes) -> bool:
        try:
            model = _model(body).model
        except msgspec.DecodeError:
            return False  # the protocol refuses it in its own words
        context = self._context
        return context.endpoints.are_native(self._path, model, context.fleet.snapshot)

    def _translate(self, body: bytes) -> Translation:
        context = self._context
        snapshot = context.fleet.snapshot
        request = ProtocolRequest(self._path, body, lambda name: context.endpoints.knows(name, snapshot))
        try:
            return self._protocol.translate(request)
        except RequestError:
            raise
        except Exception as error:
            raise failed(self._protocol) from error
