"""The kinds of faults: their parameters, and their effect on a call."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from enginehouse import parse_duration
from enginehouse_sim.simulator.server.http.call import Call

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Fault(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=str.lower):
    """A fault, which hits the next ``count`` calls, or all calls until it is cleared.

    It concerns the calls to inference endpoints, or those to ``path`` if given; with ``model``, only calls for that
    model.
    """

    count: AtLeastOne | None = None
    model: str | None = None
    path: str | None = None

    def concerns(self, call: Call, inference: bool) -> bool:
        """Whether the fault concerns ``call``. ``inference``: the call is to an inference endpoint."""
        if self.path is not None and self.path != call.path:
            return False
        if self.path is None and not inference:
            return False
        return self.model is None or self.model == _model(call.body)

    async def before(self, call: Call, cleared: asyncio.Event) -> bool:
        """Act before the engine sees the call. Return whether the call is answered."""
        return False

    async def at_start(self, call: Call, stream: bool) -> None:
        pass

    async def at_body(self, call: Call, body: bytes) -> bytes:
        return body

    async def after_chunk(self, call: Call) -> None:
        pass


class Error(Fault, frozen=True):
    """Answers ``status`` with the JSON ``body``, by default an error in OpenAI's form."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    body: Any = None

    async def before(self, call: Call, cleared: asyncio.Event) -> bool:
        error = {"message": "A fault of the simulated engine", "type": "SimulatedError", "param": None}
        await call.json({"error": {**error, "code": self.status}} if self.body is None else self.body, self.status)
        return True


class Unhealthy(Fault, frozen=True):
    """``/health`` answers 503."""

    def concerns(self, call: Call, inference: bool) -> bool:
        return call.path == "/health"

    async def before(self, call: Call, cleared: asyncio.Event) -> bool:
        await call.answer(b"", b"text/plain", 503)
        return True


class Hang(Fault, frozen=True):
    """Withholds the response until the fault is cleared; then the usual one follows."""

    async def before(self, call: Call, cleared: asyncio.Event) -> bool:
        await cleared.wait()
        return False


class Slow(Fault, frozen=True):
    """Waits ``first_byte`` before the response, and ``per_chunk``, such as ``50ms``, after each chunk of a stream."""

    first_byte: str = "0"
    per_chunk: str = "0"

    def __post_init__(self) -> None:
        parse_duration(self.first_byte)
        parse_duration(self.per_chunk)

    async def at_start(self, call: Call, stream: bool) -> None:
        await call.clock.sleep(parse_duration(self.first_byte))

    async def after_chunk(self, call: Call) -> None:
        await call.clock.sleep(parse_duration(self.per_chunk))


class Drop(Fault, frozen=True):
    """Closes the connection after ``after`` chunks of a stream; with 0, before the first byte of any response.

    A response that is not a stream breaks off in the middle of its body, unless ``after`` is 0.
    """

    after: Annotated[int, msgspec.Meta(ge=0)] = 0

    async def at_start(self, call: Call, stream: bool) -> None:
        if not self.after:
            await call.hang_up()

    async def at_body(self, call: Call, body: bytes) -> bytes:
        await call.part(body[: len(body) // 2])
        await call.hang_up()

    async def after_chunk(self, call: Call) -> None:
        if call.chunks == self.after:
            await call.hang_up()


class Malformed(Fault, frozen=True):
    """Corrupts a stream after ``after`` chunks, and the JSON of a response that is not a stream.

    With ``framing``, it breaks HTTP itself: the size of a chunk, or the status line.
    """

    after: AtLeastOne = 1
    framing: bool = False

    async def at_start(self, call: Call, stream: bool) -> None:
        if self.framing and not stream:
            await call.hang_up(b"HTTP/nonsense\r\n\r\n")

    async def at_body(self, call: Call, body: bytes) -> bytes:
        """Break the JSON. Its length stays, so that HTTP is intact."""
        return body[:-1] + b" "

    async def after_chunk(self, call: Call) -> None:
        if call.chunks != self.after:
            return
        if self.framing:
            await call.hang_up(b"nonsense\r\n")
        await call.part(b'data: {"id": "broken", "choices": [\n\n')


class RefuseConnections(Fault, frozen=True, tag="refuse"):
    """Refuses connections for ``duration``, such as ``5s``, or until the fault is cleared.

    Requests in progress continue; the server closes idle connections.
    """

    duration: str | None = None

    def __post_init__(self) -> None:
        if self.duration is not None:
            parse_duration(self.duration)

    def concerns(self, call: Call, inference: bool) -> bool:
        return False


AnyFault = Error | Unhealthy | Hang | Slow | Drop | Malformed | RefuseConnections


class _Named(msgspec.Struct):
    model: str = ""


def _model(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Named).model
    except msgspec.DecodeError:
        return ""
