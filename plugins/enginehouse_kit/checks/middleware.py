"""The conformance check of middleware: requests that pass, that are refused, and whose clients leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from enginehouse import Interceptor, Middleware, RequestError
from enginehouse.callers import AdmittedCaller
from enginehouse.interceptors import Refuse
from enginehouse.middleware import (
    ChosenInterceptor,
    EngineMemory,
    MiddlewareFacts,
    OpenExchange,
    Opening,
    OpenRequest,
    ResponseWriter,
)
from enginehouse.runtime import PluginId
from enginehouse_kit.expect import expect

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


def check_middleware(factory: Callable[[], Middleware]) -> None:
    """Check that middleware asks interceptors, and brings requests and answers through. Raises ``AssertionError``."""
    asyncio.run(_check(factory))


async def _check(factory: Callable[[], Middleware]) -> None:
    lets_pass, refuses = _Asked(None), _Asked(Refuse(403, "no", "No"))
    exchange, request, client, writer = _opened(factory(), lets_pass)
    exchange.begin(_BODY)
    await _until(lambda: bool(request.bodies))
    expect(request.bodies == [_BODY], f"a request must begin once, with its body, got {request.bodies}")
    expect(lets_pass.asked == 1, "each interceptor must be asked once")
    writer.answer(200, b"content-type: application/json\r\n", _ANSWER)
    got = client.status, client.body
    expect(got == (200, _ANSWER), f"the client must get the answer, got {got}")
    exchange.client_disconnected()
    expect(request.left, "a request must know that its client left")
    exchange, request, _, _ = _opened(factory(), refuses)
    exchange.begin(_BODY)
    await _until(lambda: request.has_ended or bool(request.bodies))
    expect(not request.bodies, "a request that an interceptor refuses must not begin")
    expect(request.error is not None, "a request that an interceptor refuses must end")


def _opened(it: Middleware, interceptor: Interceptor) -> tuple[OpenExchange, _Request, _Client, ResponseWriter]:
    chosen = ChosenInterceptor(interceptor, PluginId("interceptor", "own"), 5.0, passes=False, outer=False)
    it.use(MiddlewareFacts([chosen], EngineMemory(), lambda: 0.0, lambda type, outcome: None))
    request, client, writers = _Request(), _Client(), list[ResponseWriter]()

    def inner(writer: ResponseWriter, opening: Opening) -> OpenRequest:
        writers.append(writer)
        return request

    exchange: Any = it.open(Opening("/v1/completions", []), client, inner)
    expect(len(writers) == 1, f"open must open the request once, it did {len(writers)} times")
    missing = [name for name in ("begin", "cancel", "client_disconnected", "withdraw") if not hasattr(exchange, name)]
    expect(not missing, f"open must return an OpenExchange, {exchange!r} has no {missing}")
    return exchange, request, client, writers[0]


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(_STEPS):
        if holds():
            return
        await asyncio.sleep(0)
