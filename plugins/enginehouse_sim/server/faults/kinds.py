"""The kinds of faults, each as ``POST /sim/faults`` takes it and as it acts on a call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from enginehouse import parse_duration

if TYPE_CHECKING:
    from enginehouse_sim.server.call import Call

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Fault(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=str.lower):
    """Something that goes wrong with calls.

    It hits the next ``count`` calls, or all of them until it is cleared; only those for ``model``, if that is set; and
    those to the OpenAI endpoints that do work, or only those to ``path``, if that is set.
    """

    count: AtLeastOne | None = None
    model: str | None = None
    path: str | None = None

    def concerns(self, call: Call, inference: bool) -> bool:
        """Whether it hits ``call``; ``inference`` tells an OpenAI endpoint that does work."""
        if self.path is not None and self.path != call.path:
            return False
        if self.path is None and not inference:
            return False
        return self.model is None or self.model == _model(call.body)

    async def before(self, call: Call, cleared: asyncio.Event) -> bool:
        """Act before the engine sees the call; whether that was all the answer there will be."""
        return False

    async def at_start(self, call: Call, stream: bool) -> None:
        """Act before the first byte of the answer."""

    async def at_body(self, call: Call, body: bytes) -> bytes:
        """Act on the body of an answer that comes at once, after its headers; the body to send instead."""
        return body

    async def after_chunk(self, call: Call) -> None:
        """Act after a chunk of a stream; ``call.chunks`` is its number, from 1."""


class Error(Fault, frozen=True):
    """An answer with ``status`` and the JSON ``body``, or an OpenAI error envelope when that is absent."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    body: Any = None

    async def before(self, call: Call, cleared: asyncio.Event) -> bool:
        """Answer with the error."""
        error = {"message": "A fault of the simulated engine", "type": "SimulatedError", "param": None}
        await call.json({"error": {**error, "code": self.status}} if self.body is None else self.body, self.status)
        return True


class Unhealthy(Fault, frozen=True):
    """``/health`` answers 503."""

    def concerns(self, call: Call, inference: bool) -> bool:
        """Health checks only."""
        return call.path == "/health"

    async def before(self, call: Call, cleared: asyncio.Event) -> bool:
        """Answer 503."""
        await call.answer(b"", b"text/plain", 503)
        return True


class Hang(Fault, frozen=True):
    """No answer until the fault is cleared; then the usual one."""

    async def before(self, call: Call, cleared: asyncio.Event) -> bool:
        """Wait."""
        await cleared.wait()
        return False


class Slow(Fault, frozen=True):
    """Waits ``first_byte`` before the answer and ``per_chunk`` after each chunk of a stream; durations as text."""

    first_byte: str = "0"
    per_chunk: str = "0"

    def __post_init__(self) -> None:
        parse_duration(self.first_byte)
        parse_duration(self.per_chunk)

    async def at_start(self, call: Call, stream: bool) -> None:
        """Wait."""
        await call.clock.sleep(parse_duration(self.first_byte))

    async def after_chunk(self, call: Call) -> None:
        """Wait."""
        await call.clock.sleep(parse_duration(self.per_chunk))


class Drop(Fault, frozen=True):
    """Closes the connection after ``after`` chunks of a stream; at 0 before the first byte of any answer.

    An answer that comes at once breaks off in the middle of its body unless ``after`` is 0.
    """

    after: Annotated[int, msgspec.Meta(ge=0)] = 0

    async def at_start(self, call: Call, stream: bool) -> None:
        """Hang up before the first byte."""
        if not self.after:
            await call.hang_up()

    async def at_body(self, call: Call, body: bytes) -> bytes:
        """Hang up in the middle of the body."""
        await call.part(body[: len(body) // 2])
        await call.hang_up()

    async def after_chunk(self, call: Call) -> None:
        """Hang up after the last chunk that gets through."""
        if call.chunks == self.after:
            await call.hang_up()


class Malformed(Fault, frozen=True):
    """Puts nonsense into an answer: after ``after`` chunks of a stream, or into JSON that comes at once.

    With ``framing`` the nonsense breaks HTTP itself (the chunk size, or the status line), else only the JSON in it.
    """

    after: AtLeastOne = 1
    framing: bool = False

    async def at_start(self, call: Call, stream: bool) -> None:
        """Break the status line."""
        if self.framing and not stream:
            await call.hang_up(b"HTTP/nonsense\r\n\r\n")

    async def at_body(self, call: Call, body: bytes) -> bytes:
        """Break the JSON, length unchanged."""
        return body[:-1] + b" "

    async def after_chunk(self, call: Call) -> None:
        """Break one event, or the framing of the stream."""
        if call.chunks != self.after:
            return
        if self.framing:
            await call.hang_up(b"nonsense\r\n")
        await call.part(b'data: {"id": "broken", "choices": [\n\n')


class Refuse(Fault, frozen=True):
    """The engine does not listen: connections are refused, for ``duration`` (as text) or until the fault is cleared.

    Calls that run go on; idle connections are closed.
    """

    duration: str | None = None

    def __post_init__(self) -> None:
        if self.duration is not None:
            parse_duration(self.duration)

    def concerns(self, call: Call, inference: bool) -> bool:
        """No call: it keeps them from arriving."""
        return False


AnyFault = Error | Unhealthy | Hang | Slow | Drop | Malformed | Refuse


class _Named(msgspec.Struct):
    model: str = ""


def _model(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Named).model
    except msgspec.DecodeError:
        return ""
