"""The conformance check of middleware: requests that pass, that are refused, and whose clients leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enginehouse import Middleware, RequestError
from enginehouse.callers import AdmittedCaller
from enginehouse.drivers import EngineClient
from enginehouse.errors import NotFound
from enginehouse.middleware import (
    EngineMemory,
    MiddlewareFacts,
    OpenExchange,
    Opening,
    OpenRequest,
    ResponseWriter,
)
from enginehouse.runtime import PluginId
from enginehouse_kit.expect import expect
from enginehouse_kit.interceptors import Interceptor, Refuse
from enginehouse_kit.protocols import Envelope, Forwarded, Protocol, ProtocolRequest

_PATH = "/v1/completions"
_BODY = b'{"model":"m","prompt":"Hi"}'
_ANSWER = b'{"choices":[{"index":0,"text":"Hello","finish_reason":"stop"}]}'
_STEPS = 50
"""Iterations of the loop after which an interceptor that answers at once has been heard."""


class _Client(ResponseWriter):
    """Notes what it gets."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self.status = status

    def write(self, chunk: bytes) -> None:
        self.body += chunk

    def finish(self, chunk: bytes) -> None:
        self.body += chunk

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        self.status = 0


class _Request(OpenRequest):
    """Notes what becomes of it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.error: Exception | None = None
        self.left = False

    @property
    def backend(self) -> str:
        return ""

    @property
    def request_id(self) -> bytes:
        return b"r1"

    @property
    def has_ended(self) -> bool:
        return self.error is not None or self.left

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        self.bodies.append(body)

    def cancel(self, error: RequestError | None = None) -> None:
        self.error = error or RequestError("cancelled")

    def client_disconnected(self) -> None:
        self.left = True

    def withdraw(self) -> bool:
        return False

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    def admit(self, body: bytes, caller: AdmittedCaller | None) -> bytes:
        return b""

    def give_back(self) -> None:
        return

    def refuse(self, error: RequestError, caller: AdmittedCaller | None) -> None:
        self.error = error

    def fail_alone(self, error: Exception) -> None:
        self.error = error

    def end(self, status: int, outcome: str, error: RequestError | None = None, answer: Any = None) -> None:
        self.error = error


class _Asked(Interceptor):
    """Refuses requests, or lets them pass."""

    def __init__(self, said: Refuse | None) -> None:
        self.said = said
        self.asked = 0

    async def before(self, request: Any) -> Refuse | None:
        self.asked += 1
        expect(request.body == _BODY, f"an interceptor must see the request's body, got {request.body!r}")
        return self.said


class _Forwards(Protocol):
    """OpenAI's protocol at another path."""

    name = "own"
    paths = ("/own/completions",)

    def translate(self, request: ProtocolRequest) -> Forwarded:
        return Forwarded(_PATH, request.body)

    def error(self, status: int, envelope: Envelope) -> bytes:
        return b"{}"


def check_middleware(factory: Callable[[], Middleware]) -> None:
    """Check that middleware brings requests and answers through, and asks what it serves.

    Raises ``AssertionError``.
    """
    serves = factory().serves
    expect(serves in ("interceptors", "protocols"), f"serves must be 'interceptors' or 'protocols', got {serves!r}")
    asyncio.run(_check_interceptors(factory) if serves == "interceptors" else _check_protocols(factory))


async def _check_interceptors(factory: Callable[[], Middleware]) -> None:
    lets_pass, refuses = _Asked(None), _Asked(Refuse(403, "no", "No"))
    await _check_passing(factory(), Opening(_PATH, []), lets_pass)
    expect(lets_pass.asked == 1, "each interceptor must be asked once")
    exchange, opened = _open(factory(), Opening(_PATH, []), _Client(), refuses)
    exchange.begin(_BODY)
    await _until(lambda: any(each.has_ended or each.bodies for each in opened.requests))
    [request] = opened.requests
    expect(not request.bodies, "a request that an interceptor refuses must not begin")
    expect(request.error is not None, "a request that an interceptor refuses must end")


async def _check_protocols(factory: Callable[[], Middleware]) -> None:
    opened = await _check_passing(factory(), Opening("/own/completions", [], _Forwards()))
    [opening] = opened.openings
    expect(opening.path == _PATH, f"the protocol's path must be asked for, got {opening.path!r}")


async def _check_passing(it: Middleware, opening: Opening, *asked: Interceptor) -> _Opened:
    """Check a request that passes."""
    client = _Client()
    exchange, opened = _open(it, opening, client, *asked)
    exchange.begin(_BODY)
    await _until(lambda: any(each.bodies for each in opened.requests))
    expect(len(opened.requests) == 1, f"a request must be opened once, not {len(opened.requests)} times")
    [request], [writer] = opened.requests, opened.writers
    expect(request.bodies == [_BODY], f"a request must begin once, with its body, got {request.bodies}")
    writer.answer(200, b"content-type: application/json\r\n", _ANSWER)
    got = client.status, client.body
    expect(got == (200, _ANSWER), f"the client must get the answer, got {got}")
    exchange.client_disconnected()
    expect(request.left, "a request must know that its client left")
    return opened


class _Opened:
    """The requests that middleware has opened."""

    def __init__(self) -> None:
        self.requests: list[_Request] = []
        self.openings: list[Opening] = []
        self.writers: list[ResponseWriter] = []

    def open(self, writer: ResponseWriter, opening: Opening) -> OpenRequest:
        self.requests.append(_Request())
        self.openings.append(opening)
        self.writers.append(writer)
        return self.requests[-1]


def _open(
    it: Middleware, opening: Opening, client: ResponseWriter, *asked: Interceptor
) -> tuple[OpenExchange, _Opened]:
    it.use(
        MiddlewareFacts(
            _Configured(asked),
            EngineMemory(),
            now=lambda: 0.0,
            intercepted=lambda type, outcome: None,
            native=lambda path, model: (),
            knows=lambda model: True,
            engine=_no_engine,
        )
    )
    opened = _Opened()
    exchange: Any = it.open(opening, client, opened.open)
    missing = [name for name in ("begin", "cancel", "client_disconnected", "withdraw") if not hasattr(exchange, name)]
    expect(not missing, f"open must return an OpenExchange, {exchange!r} has no {missing}")
    return exchange, opened


class _Configured:
    """The ``Configured`` of a configuration whose ``interceptors`` are these."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = interceptors

    def table(self, name: str) -> Any:
        return [str(number) for number, _ in enumerate(self._interceptors)] if name == "interceptors" else ()

    def types(self, kind: str) -> Mapping[str, Any]:
        return {}

    def plugin(
        self,
        kind: str,
        type: str,
        key: str,
        parameters: Mapping[str, Any] | None = None,
        prepare: Callable[[Any], None] | None = None,
    ) -> tuple[PluginId, Any]:
        return PluginId(kind, "own"), self._interceptors[int(type)]


def _no_engine(backend: str) -> EngineClient:
    raise NotFound(f"There is no backend '{backend}'")


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(_STEPS):
        if holds():
            return
        await asyncio.sleep(0)
