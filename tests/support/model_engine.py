"""An engine that streams what the model of ``streaming_model`` says, and breaks as a test says."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from tests.support.scripted_engine import END, Cut, EngineConnection, ReceivedCall, ScriptedEngine, Step, chunk
from tests.support.streaming_model import stream

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Break:
    """After ``events`` whole events, these steps follow instead of the rest; bytes are a chunk of the body."""

    def __init__(self, events: int, *steps: Step) -> None:
        self.events = events
        self.steps = steps


class ModelEngine(ScriptedEngine):
    """Streams the model's answers, and has no pages. Each stream takes the next of ``breaks``, if there is one.

    ``refuses``: paths, or fields of a body, that are answered 400. ``gate``: an event to wait for after so many events.
    ``scripts``: what the next requests get instead.
    """

    def __init__(self) -> None:
        super().__init__("http")
        self.breaks: list[Break] = []
        self.refuses: set[str] = set()
        self.gate: tuple[int, asyncio.Event] | None = None
        self.scripts: list[tuple[Step, ...]] = []

    def arrived(self, call: ReceivedCall) -> tuple[Step, ...]:
        self.calls.append(call)
        if self.scripts:
            return self.scripts.pop(0)
        if call.request_line.startswith(b"GET"):
            return (self.answer(b"{}", 404),)
        path = call.request_line.split(b" ")[1].decode()
        fields = msgspec.json.decode(call.body)
        if self.refuses & {path, *fields}:
            return (self.answer(b'{"error": {"message": "no"}}', 400),)
        events: list[Step] = [chunk(event) for event in stream(path, call.body)]
        if self.gate is not None and not self.breaks:
            events.insert(self.gate[0], self.gate[1])
        if not fields.get("stream"):
            return (self.answer(b"{}"),)
        if not self.breaks:
            return (_HEAD, *events, END)
        broken = self.breaks.pop(0)
        rest = (step if isinstance(step, (asyncio.Event, Cut)) or step is END else chunk(step) for step in broken.steps)
        return (_HEAD, *events[: broken.events], *rest)

    def asked(self, number: int = -1) -> dict[str, Any]:
        """The body of a request."""
        fields: dict[str, Any] = msgspec.json.decode(self.calls[number].body)
        return fields


class StartModelEngine(Protocol):
    """Starts engines that stream what the model says."""

    async def __call__(self) -> ModelEngine: ...


async def start_model_engine() -> ModelEngine:
    """An engine that listens on a port of its own."""
    engine = ModelEngine()
    loop = asyncio.get_running_loop()
    engine.listens(await loop.create_server(lambda: EngineConnection(engine), engine.host, 0))
    return engine
