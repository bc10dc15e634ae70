"""Requests to an engine whose answers are timed, event by event."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import httptools
import msgspec

from enginehouse import ConfigError, GatewayError

_TIMEOUT_S = 300.0


class EngineAddress(msgspec.Struct, frozen=True):
    """An engine's or gateway's address, the model to ask for, and the key of the API.

    Raises ``ConfigError`` for what is not an address.
    """

    url: str
    model: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise ConfigError(f"{self.url!r} is not the address of an engine", remedy="write http://HOST:PORT")


class _ChoiceOfStream(msgspec.Struct):
    text: str | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    """The part of a stream's event that counts tokens."""

    choices: list[_ChoiceOfStream] = msgspec.field(default_factory=list)
    usage: _Usage | None = None


class TimedStream:
    """The times of an answer, in seconds of ``perf_counter``.

    ``sent``: of the request. ``events``: of each event that carries tokens. ``made``: the engine's count of tokens at
    each event; empty if it tells none. ``tokens``: of the whole answer, by the engine's count; 0 until it ends.
    """

    def __init__(self, on_event: Callable[[], None] | None = None) -> None:
        self.sent = 0.0
        self.events: list[float] = []
        self.made: list[int] = []
        self.tokens = 0
        self.status = 0
        self.body = bytearray()
        self._on_event = on_event
        self._pending = b""

    def feed(self, data: bytes) -> None:
        """Read a part of the body, which has arrived just now."""
        if self.status != 200:
            self.body += data
            return
        now = perf_counter()
        *events, self._pending = (self._pending + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            self._note(event, now)

    def _note(self, text: bytes, now: float) -> None:
        payload = text.partition(b"data:")[2].strip()
        if not payload.startswith(b"{"):
            return
        event = msgspec.json.decode(payload, type=_Event)
        if event.usage is not None:
            self.tokens = event.usage.completion_tokens or self.tokens
        if any(choice.text or choice.finish_reason is None for choice in event.choices):
            self.events.append(now)
            if event.usage is not None:
                self.made.append(event.usage.completion_tokens)
            if self._on_event is not None:
                self._on_event()


class _Page(TimedStream):
    """An answer that is not a stream."""

    def feed(self, data: bytes) -> None:
        self.body += data


class _Receiver:
    """Takes what the parser of a response finds."""

    def __init__(self, stream: TimedStream) -> None:
        self.is_whole = False
        self._stream = stream

    def on_body(self, body: bytes) -> None:
        self._stream.feed(body)

    def on_message_complete(self) -> None:
        self.is_whole = True


async def stream(address: EngineAddress, body: Mapping[str, Any], timed: TimedStream | None = None) -> TimedStream:
    """Ask for a completion as a stream, and read it to its end. Raises ``GatewayError``.

    ``timed`` follows the answer; by default a new one.
    """
    timed = timed or TimedStream()
    await _exchange(address, "POST", "/v1/completions", msgspec.json.encode({**body, "model": address.model}), timed)
    if timed.status != 200:
        raise GatewayError(
            f"{address.url} answered {timed.status}: {bytes(timed.body[:300]).decode('utf-8', 'replace')}"
        )
    return timed


async def get(address: EngineAddress, path: str) -> bytes:
    """The body of a page; empty if there is no such page. Raises ``GatewayError`` if nothing answers."""
    timed = _Page()
    await _exchange(address, "GET", path, b"", timed)
    return bytes(timed.body) if timed.status == 200 else b""


async def _exchange(address: EngineAddress, method: str, path: str, body: bytes, timed: TimedStream) -> None:
    try:
        await asyncio.wait_for(_exchanged(address, method, path, body, timed), _TIMEOUT_S)
    except (OSError, asyncio.TimeoutError, httptools.HttpParserError) as error:
        raise GatewayError(f"{address.url} cannot be measured: {error or type(error).__name__}") from None


async def _exchanged(address: EngineAddress, method: str, path: str, body: bytes, timed: TimedStream) -> None:
    parts = urlsplit(address.url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if secure else 80), ssl=secure)
    try:
        timed.sent = perf_counter()
        writer.write(_head(address, method, parts.path.rstrip("/") + path, len(body)) + body)
        await _read(reader, timed)
    finally:
        writer.close()


def _head(address: EngineAddress, method: str, path: str, length: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"host: {urlsplit(address.url).netloc}", "connection: close"]
    if address.key:
        lines.append(f"authorization: Bearer {address.key}")
    if length:
        lines += ["content-type: application/json", f"content-length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


async def _read(reader: asyncio.StreamReader, timed: TimedStream) -> None:
    receiver = _Receiver(timed)
    parser = httptools.HttpResponseParser(receiver)
    while not receiver.is_whole:
        data = await reader.read(65536)
        if not data:
            raise ConnectionError("the answer broke off")
        if not timed.status and b"\r\n" in data[:256]:
            timed.status = int(data.split(b" ", 2)[1][:3])
        parser.feed_data(data)
