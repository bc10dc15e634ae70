"""Engines that answer by a script, byte by byte."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Protocol, cast

from tests.support.own_address import OWN_ADDRESS
from tests.support.waiting import Signal, until


class Cut(Enum):
    """How a script ends a connection."""

    CLOSE = "close"
    RESET = "reset"


Step = bytes | asyncio.Event | Cut
"""Bytes to send, an event to wait for, or the end of the connection."""
END = b"0\r\n\r\n"
"""The last chunk of a body."""


def chunk(data: bytes) -> bytes:
    """``data`` as a chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def abort(transport: asyncio.WriteTransport) -> None:
    """Reset a connection."""
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


class ReceivedCall:
    """One request as it reached an engine. ``closed`` is set once its connection is, ``played`` after its script."""

    def __init__(self, head: bytes, connection: EngineConnection) -> None:
        self.request_line, *lines = head.split(b"\r\n")
        pairs = [line.partition(b": ") for line in lines]
        self.lines = [(name, value) for name, _, value in pairs]
        self.body = b""
        self.connection = connection
        self.closed = connection.closed
        self.played = asyncio.Event()
        self.sent = 0

    def header(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.lines if key.lower() == name]


class EngineConnection(asyncio.Protocol):
    """A gateway's connection to an engine: reads requests and plays their scripts. Chunked bodies stay as they come."""

    transport: asyncio.Transport

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.received = bytearray()
        self.call: ReceivedCall | None = None
        self.deaf = False
        self.closed = Signal()
        self.writable = asyncio.Event()
        self.writable.set()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.engine.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self.writable.set()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        if self.engine.early:
            self.transport.write(self.engine.early)
            self.transport.pause_reading()
            self.engine.early = b""
            self.deaf = True
        if self.deaf:
            return
        self.received += data
        if self.call is None:
            head, end, rest = bytes(self.received).partition(b"\r\n\r\n")
            if not end:
                return
            self.call = ReceivedCall(head, self)
            self.received = bytearray(rest)
        chunked = bool(self.call.header(b"transfer-encoding"))
        length = int((self.call.header(b"content-length") or [b"0"])[0])
        if chunked:
            length = len(self.received) + (not self.received.endswith(b"\r\n" + END))
        assert len(self.received) <= length, "more than one request at once"
        if len(self.received) == length:
            call, self.call = self.call, None
            call.body, self.received = bytes(self.received), bytearray()
            self.task = asyncio.ensure_future(self.play(call, self.engine.arrived(call)))

    async def play(self, call: ReceivedCall, script: tuple[Step, ...]) -> None:
        for step in script:
            if isinstance(step, bytes):
                self.transport.write(step)
                call.sent += len(step)
                await self.writable.wait()
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif step is Cut.CLOSE:
                self.transport.close()
            else:
                abort(self.transport)
            await asyncio.sleep(0)
        call.played.set()


class ScriptedEngine:
    """An engine that answers by scripts. Each request takes the next one."""

    CLOSE, RESET, END = Cut.CLOSE, Cut.RESET, END

    def __init__(self, scheme: str, host: str = OWN_ADDRESS) -> None:
        self.host = host
        self.url = f"{scheme}://{host}:"
        self.calls: list[ReceivedCall] = []
        self.connections: list[EngineConnection] = []
        self.early = b""
        self._scripts: list[tuple[Step, ...]] = []
        self._otherwise: tuple[tuple[Step, ...], ...] = ((self.answer(),),)
        self._dice = random.Random(0)
        self._server: asyncio.Server | socket.socket

    def listens(self, server: asyncio.Server) -> None:
        self.url += str(server.sockets[0].getsockname()[1])
        self._server = server

    def holds_port(self) -> None:
        """Hold a port at which nothing listens, so that no other process gets it."""
        self._server = held = socket.socket()
        held.bind((self.host, 0))
        self.url += str(held.getsockname()[1])

    def plays(self, *steps: Step) -> None:
        """The script of the next request."""
        self._scripts.append(steps)

    def says(self, body: bytes = b'{"ok": true}', status: int = 200, *lines: bytes) -> None:
        """A whole answer to the next request."""
        self.plays(self.answer(body, status, *lines))

    def streams(self, *steps: Step) -> None:
        """A chunked stream of events as the answer to the next request; bytes are sent as chunks."""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self.plays(head, *(chunk(s) if isinstance(s, bytes) and s is not END else s for s in steps))

    def otherwise(self, *scripts: tuple[Step, ...], dice: random.Random | None = None) -> None:
        """One of these, drawn with ``dice``, is the script of every request that has none of its own."""
        self._otherwise = scripts
        self._dice = dice or self._dice

    def answers_early(self, answer: bytes) -> None:
        """Send ``answer`` as soon as a request begins, and read nothing more on that connection."""
        self.early = answer

    @staticmethod
    def answer(body: bytes = b'{"ok": true}', status: int = 200, *lines: bytes) -> bytes:
        head = [b"HTTP/1.1 %d Said" % status, b"content-type: application/json", *lines]
        return b"\r\n".join((*head, b"content-length: %d" % len(body), b"", body))

    def arrived(self, call: ReceivedCall) -> tuple[Step, ...]:
        self.calls.append(call)
        return self._scripts.pop(0) if self._scripts else self._dice.choice(self._otherwise)

    async def call(self, number: int = 0) -> ReceivedCall:
        """The request of that number, as soon as it is here."""
        await until(lambda: len(self.calls) > number)
        return self.calls[number]

    def stop_listening(self) -> None:
        self._server.close()

    async def close(self) -> None:
        self.stop_listening()
        for connection in self.connections:
            connection.transport.abort()
        await until(lambda: all(connection.closed.is_set() for connection in self.connections))


class StartEngine(Protocol):
    """Starts scripted engines. ``tls`` gives one a certificate; with ``there=False`` nothing listens at its address."""

    async def __call__(
        self, *, tls: ssl.SSLContext | None = None, there: bool = True, scheme: str = ""
    ) -> ScriptedEngine: ...


async def start_engine(tls: ssl.SSLContext | None, scheme: str, *, there: bool) -> ScriptedEngine:
    """A scripted engine with a port of its own."""
    engine = ScriptedEngine(scheme or ("https" if tls else "http"), "127.0.0.1" if tls else OWN_ADDRESS)
    if not there:
        engine.holds_port()
        return engine
    loop = asyncio.get_running_loop()
    engine.listens(await loop.create_server(lambda: EngineConnection(engine), engine.host, 0, ssl=tls))
    return engine


@asynccontextmanager
async def scripted_engines() -> AsyncIterator[StartEngine]:
    """Starts scripted engines, and closes them at the end."""
    engines: list[ScriptedEngine] = []

    async def start(*, tls: ssl.SSLContext | None = None, there: bool = True, scheme: str = "") -> ScriptedEngine:
        made = await start_engine(tls, scheme, there=there)
        engines.append(made)
        return made

    yield start
    for each in engines:
        await each.close()
