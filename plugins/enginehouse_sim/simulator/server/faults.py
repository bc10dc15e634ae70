"""Faults that clients inject: their kinds, their effect on a call, and the active ones."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Protocol

import msgspec

from enginehouse import InvalidRequest, parse_duration
from enginehouse_sim.simulator.server.batching_engine import EngineClock
from enginehouse_sim.simulator.server.http import Call, ResponseHooks

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Fault(
    msgspec.Struct,
    ResponseHooks,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=str.lower,
):
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
        await asyncio.sleep(parse_duration(self.first_byte))

    async def after_chunk(self, call: Call) -> None:
        await asyncio.sleep(parse_duration(self.per_chunk))


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
    except (msgspec.DecodeError, RecursionError):
        return ""


class Refusable(Protocol):
    """A listener that can refuse connections."""

    def refuse(self) -> None: ...
    async def accept(self) -> None: ...


class ActiveFault:
    """An active fault with its number of hits. ``cleared`` is set when the fault is cleared."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.kind = type(fault).__name__.lower()
        self.hits = 0
        self.cleared = asyncio.Event()


class ActiveFaults:
    """All active faults. The first one that concerns a call hits it. ``listener`` is set once the server listens."""

    def __init__(self, clock: EngineClock) -> None:
        self.listener: Refusable | None = None
        self._clock = clock
        self._set: list[ActiveFault] = []
        self._reopening: asyncio.Task[None] | None = None

    def add(self, fault: AnyFault, can_be_cleared: bool) -> None:
        """Activate a fault. ``can_be_cleared``: clearing works even while connections are refused.

        Raises ``InvalidRequest`` for one that could never be cleared.
        """
        if isinstance(fault, RefuseConnections):
            self._refuse(fault, can_be_cleared)
        self._set.append(ActiveFault(fault))

    def hit(self, call: Call, inference: bool) -> ActiveFault | None:
        for active in self._set:
            if active.hits != active.fault.count and active.fault.concerns(call, inference):
                active.hits += 1
                return active
        return None

    async def clear(self) -> None:
        for active in self._set:
            active.cleared.set()
        refused = any(isinstance(active.fault, RefuseConnections) for active in self._set)
        self._set.clear()
        self._stop_timer()
        if refused and self.listener is not None:
            await self.listener.accept()

    def listing(self) -> list[dict[str, Any]]:
        return [{**msgspec.to_builtins(active.fault), "hits": active.hits} for active in self._set]

    def _refuse(self, fault: RefuseConnections, can_be_cleared: bool) -> None:
        if fault.duration is None and not can_be_cleared:
            raise InvalidRequest("'refuse' needs a 'duration', or an engine started with --control-port to clear it")
        if self.listener is not None:
            self.listener.refuse()
        self._stop_timer()
        if fault.duration is not None:
            self._reopening = asyncio.create_task(self._clear_after(parse_duration(fault.duration)))

    def _stop_timer(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None

    async def _clear_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._set = [active for active in self._set if not isinstance(active.fault, RefuseConnections)]
        if self.listener is not None:
            await self.listener.accept()
