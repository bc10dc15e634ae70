"""Calls between the owner and one worker, over a unix socket, in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import cache
from types import GenericAlias
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast, get_type_hints

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.domain.errors import RequestError, ShuttingDown, kinds_of

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)
_LENGTH: Final = 4
_DEFECT: Final = "A message between the gateway's processes met a defect"
_encode = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[str, int, msgspec.Raw]).decode
_hints = cache(get_type_hints)  # it reads annotations that are text, which takes longer than all else


class SentError(msgspec.Struct, frozen=True, array_like=True):
    """An error as another process gets it. ``kind``: the class of a ``RequestError``."""

    kind: str
    message: str
    param: str | None = None
    details: dict[str, Any] = {}
    retry_after: int | None = None

    @classmethod
    def of(cls, error: Exception) -> SentError:
        if not isinstance(error, RequestError):
            return cls("RequestError", str(error))
        return cls(type(error).__name__, error.message, error.param, dict(error.details), error.retry_after)

    def received(self) -> RequestError:
        """The error that another process had."""
        kind = next((each for each in kinds_of(RequestError) if each.__name__ == self.kind), RequestError)
        made = kind.__new__(kind)  # the constructors of most kinds make the message from other things
        RequestError.__init__(made, self.message, param=self.param, details=self.details, retry_after=self.retry_after)
        return made


class Send(Protocol):
    """Calls a method of the other side soon, such as ``Worker.fail``: of the part there that has this class."""

    def __call__(
        self, method: Callable[Concatenate[Any, P], None], /, *arguments: P.args, **no_others: P.kwargs
    ) -> None: ...


class Channel(asyncio.Protocol):
    """One side of the connection. Calls of one turn of the event loop are written together.

    ``on_lost`` is called when the other process is gone.
    """

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._outgoing: list[bytes] = []
        self._parts: dict[str, object] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._last_asked = 0
        self._tasks = BackgroundTasks()
        self.closed = False
        self.attach(self)

    async def open(self, connected: socket.socket) -> None:
        """Begin on a connected socket, of the running event loop."""
        await asyncio.get_running_loop().create_connection(lambda: self, sock=connected)

    def attach(self, part: object) -> None:
        """Have ``part`` do what the other side calls of its class."""
        self._parts.update(dict.fromkeys([kind.__qualname__ for kind in type(part).__mro__], part))

    def send(self, method: Callable[Concatenate[Any, P], None], /, *arguments: P.args, **_: P.kwargs) -> None:
        """Call a ``method`` of the other side soon. Does nothing once the other process is gone."""
        self._send(method.__qualname__, 0, arguments)

    async def ask(
        self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], /, *arguments: P.args, **_: P.kwargs
    ) -> T:
        """Call a ``method`` of the other side and return its result. Raises ``RequestError``."""
        if self.closed:
            raise _gone()
        self._last_asked += 1
        call = self._last_asked
        answer = self._asked[call] = asyncio.get_running_loop().create_future()
        self._send(method.__qualname__, call, arguments)
        try:
            result: T = msgspec.convert(await answer, _hints(method)["return"])
            return result
        finally:
            del self._asked[call]

    @property
    def waiting(self) -> int:
        """The bytes that the other process has not read."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def flush(self) -> None:
        """Write the calls that wait."""
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and outgoing and not self.closed:
            self._transport.write(b"".join(outgoing))

    def close(self) -> None:
        """End the connection, when all is written."""
        self.flush()
        self.closed = True
        self._tasks.cancel()
        if self._transport is not None:
            self._transport.close()

    # --- from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's has no such base
        self.flush()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        place = 0
        while len(received) - place >= _LENGTH:
            end = place + _LENGTH + int.from_bytes(received[place : place + _LENGTH], "big")
            if len(received) < end:
                break
            message = bytes(received[place + _LENGTH : end])
            place = end
            try:
                self._receive(*_decode(message))
            except Exception:
                _log.exception(_DEFECT)
        del received[:place]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._tasks.cancel()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(_gone())
        self._on_lost()

    # --- inside

    def _send(self, name: str, call: int, arguments: tuple[object, ...]) -> None:
        if self.closed:
            return
        data = _encode((name, call, arguments))
        self._outgoing += (len(data).to_bytes(_LENGTH, "big"), data)
        if len(self._outgoing) == 2:  # the first one of this turn of the event loop
            asyncio.get_running_loop().call_soon(self.flush)

    def _receive(self, name: str, call: int, arguments: msgspec.Raw) -> None:
        kind, _, name = name.rpartition(".")
        part = self._parts[kind]
        result = getattr(part, name)(*_decoder(getattr(type(part), name))(arguments))
        if call:
            self._tasks.start(self._answer(call, result))

    async def _answer(self, call: int, result: Coroutine[Any, Any, object]) -> None:
        try:
            self.send(Channel._told, call, await result, None)
        except RequestError as error:
            self.send(Channel._told, call, None, SentError.of(error))
        except Exception:
            _log.exception(_DEFECT)
            self.send(Channel._told, call, None, SentError.of(RequestError("Internal error; see the gateway's log")))

    def _told(self, call: int, value: Any, error: SentError | None) -> None:
        waiting = self._asked.get(call)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(value)
        else:
            waiting.set_exception(error.received())


@cache
def _decoder(method: Callable[..., Any]) -> Callable[[msgspec.Raw], Any]:
    """Decodes the arguments of a method."""
    types = [type for name, type in _hints(method).items() if name != "return"]
    return msgspec.msgpack.Decoder(GenericAlias(tuple, tuple(types))).decode


def _gone() -> ShuttingDown:
    return ShuttingDown("The process of the gateway that should answer has ended; send the request again")
