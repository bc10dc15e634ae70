"""The middleware that has protocols translate requests and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Literal, TypeVar

from enginehouse import InvalidRequest, Middleware, RequestError
from enginehouse.callers import AdmittedCaller
from enginehouse.middleware import MiddlewareFacts, OpenExchange, Opening, ResponseWriter, model_named, plain_json
from enginehouse_kit.protocols import Forwarded, Native, Protocol, ProtocolRequest, Translation
from enginehouse_translation.translating_writer import TranslatingWriter, TranslationTurns, known
from enginehouse_translation.watching_writer import WatchingWriter

T = TypeVar("T")


class Translating(Middleware):
    """Opens each request when its body says what engines are asked for."""

    serves: ClassVar[Literal["interceptors", "protocols"]] = "protocols"

    def use(self, gateway: MiddlewareFacts) -> None:
        self._gateway = gateway
        self._turns = TranslationTurns()

    def open(
        self, opening: Opening, writer: ResponseWriter, inner: Callable[[ResponseWriter, Opening], OpenExchange]
    ) -> OpenExchange:
        return TranslatedExchange(self._gateway, opening, writer, inner, self._turns)


Asked = Translation | Forwarded | Native


class TranslatedExchange(OpenExchange):
    """Opens the exchange with the engine when the body says whether it must be translated.

    No other process continues its stream, because only this one knows what it has translated.
    """

    def __init__(
        self,
        gateway: MiddlewareFacts,
        opening: Opening,
        writer: ResponseWriter,
        inner: Callable[[ResponseWriter, Opening], OpenExchange],
        turns: TranslationTurns,
    ) -> None:
        assert opening.protocol is not None
        self._gateway = gateway
        self._opening = opening
        self._protocol: Protocol = opening.protocol
        self._writer = writer
        self._open = inner
        self._exchange: OpenExchange | None = None
        self._translating = TranslatingWriter(writer, opening.protocol, gateway.memory, turns)
        self._waiting: asyncio.Task[None] | None = None

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        if self._exchange is not None:
            return
        try:
            request = self._request(body, caller)
            if isinstance(request, Awaitable):
                self._waiting = asyncio.ensure_future(self._begin_later(request, body, caller))
            else:
                self._begin(request, body, caller)
        except Exception as error:
            self._open_refused().cancel(known(error, self._protocol))

    def _request(self, body: bytes, caller: AdmittedCaller | None) -> Asked | Awaitable[Asked]:
        protocol, backends = self._protocol, self._native_backends(body)
        if backends:
            return self._read(protocol.native, body, caller, backends)
        try:
            return self._read(protocol.translate, body, caller, ())
        except InvalidRequest:
            if (whole := plain_json(self._opening.headers, body)) is None:
                raise
        return self._request(whole, caller)

    async def _begin_later(self, awaited: Awaitable[Asked], body: bytes, caller: AdmittedCaller | None) -> None:
        try:
            request = await awaited
            self._waiting = None
            self._begin(request, body, caller)
        except (Exception, SystemExit) as error:
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
        opening = self._opening._replace(path=request.path, translation=translation)
        self._exchange = exchange = self._open(writer, opening)
        if writer is self._translating:
            self._translating.exchange = exchange
        exchange.begin(request.body, caller)

    def _begin_native(self, request: Native, body: bytes, caller: AdmittedCaller | None) -> None:
        watches = request.watch is not None or request.answer is not None
        watching = WatchingWriter(self._writer, request, self._protocol) if watches else None
        opening = self._opening._replace(backend=request.backend)
        self._exchange = exchange = self._open(watching or self._writer, opening)
        if watching is not None:
            watching.exchange = exchange
        exchange.begin(body, caller)

    def _open_refused(self) -> OpenExchange:
        """The exchange of a request that no engine gets: the log has it nevertheless."""
        self._stop_waiting()
        if self._exchange is None:
            self._exchange = self._open(self._writer, self._opening)
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
        model = model_named(body)  # the protocol refuses a body that nobody can read in its own words
        return () if model is None else self._gateway.native(self._opening.path, model)

    def _read(
        self, read: Callable[[ProtocolRequest], T], body: bytes, caller: AdmittedCaller | None, backends: Sequence[str]
    ) -> T:
        """What the protocol makes of the request. Raises ``RequestError``."""
        gateway, path, name = self._gateway, self._opening.path, "" if caller is None else caller.name
        try:
            return read(ProtocolRequest(path, body, gateway.knows, name, backends, gateway.engine))
        except BaseException as error:
            raise known(error, self._protocol) from None
