"""Counts the files and functions of the gateway that one request walks through: ``python tools/walk.py``.

The gateway is warm, pure Python and configured by default. Every call of a function counts whose file lies below
``gateway/`` or ``plugins/``, from the arrival of the request's bytes to the end of its record. With ``--broken``, an
engine breaks off a stream after five of its ten events, and another one continues it. With ``--launch``, the engine of
the request's model is launched for it, and with ``--evict`` another engine is stopped before that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, cast

import msgspec

from enginehouse.app import Gateway
from enginehouse.config.schema import Config
from enginehouse.engines.state_file import StateFile
from enginehouse.http.client_connection import ClientConnection
from enginehouse.http.cross_origin import Cors
from enginehouse.http.server import HttpServer
from enginehouse.plugin_manager.discovery import load_plugins

ROOT = Path(__file__).resolve().parent.parent
COUNTED = (str(ROOT / "gateway"), str(ROOT / "plugins"))
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
LAUNCHED = """
import asyncio, sys

BODY = b'{"data":[{"id":"m"}],"choices":[{"message":{"role":"assistant","content":"Hi"}}]}'
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n"

class Engine(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(HEAD % len(BODY) + BODY)

async def main():
    await (await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", int(sys.argv[1]))).serve_forever()

asyncio.run(main())
"""
"""The program of an engine that the gateway launches. It prints nothing."""
TRIES, LAUNCHES = 20, 5
"""A timer that fires in the middle of a walk counts, so the shortest of several is the walk."""


class Engine(asyncio.Protocol):
    """Answers a chat at once: whole, or as a stream of ten events. One that ``breaks`` is gone after five of them.

    The rest of such a stream has five events.
    """

    breaks = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if b'"stream":true' not in data:
            body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}).encode()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(head + body)
            return
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        rest = data.startswith(b"POST /v1/completions")
        for number in range(5 if rest or self.breaks else 10):
            piece: dict[str, Any] = {"text": str(number)} if rest else {"delta": {"content": str(number)}}
            if b'"return_token_ids":true' in data:
                piece |= {"token_ids": [number], "prompt_token_ids": [1]}
            event = b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, **piece}]}).encode()
            self.transport.write(b"%x\r\n%s\r\n" % (len(event), event))
        if self.breaks and not rest:
            self.transport.close()
            return
        self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


class BreakingEngine(Engine):
    breaks = True


class Client(asyncio.Protocol):
    """Sends a request; ``done`` is set when its answer is whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.done = asyncio.Event()
        self.received = b""

    def ask(self, stream: bool, model: str = "m") -> None:
        body = json.dumps({"model": model, **CHAT, **({"stream": True} if stream else {})}, separators=(",", ":"))
        self._send(body.encode())

    def _send(self, body: bytes) -> None:
        self.done.clear()
        self.received = b""
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.received.endswith((b"0\r\n\r\n", b"}")):
            self.done.set()


class Walk:
    """Counts calls by file and function, while it is the profiler."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self._began = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(COUNTED):
            return
        self._began |= code.co_name == "data_received"
        if self._began:
            self.calls[str(Path(code.co_filename).relative_to(ROOT)), code.co_name] += 1


async def walk(stream: bool, broken: bool) -> Walk:
    loop = asyncio.get_running_loop()
    engines = await loop.create_server(BreakingEngine if broken else Engine, "127.0.0.1", 0)
    backend = {"url": f"http://127.0.0.1:{engines.sockets[0].getsockname()[1]}", "models": ["m"]}
    backends = {"a": backend} if not broken else {name: {**backend, "driver": "vllm"} for name in ("a", "b")}
    gateway = made({"backends": backends})
    listening, client = await connected(gateway)
    shortest: Walk | None = None
    for _ in range(TRIES):
        for name in backends:
            gateway.fleet.succeeded(name)
        counted = await counted_request(client, stream)
        if shortest is None or counted.calls.total() < shortest.calls.total():
            shortest = counted
    assert shortest is not None
    gateway.relay.close()
    client.transport.close()
    listening.close()
    engines.close()
    return shortest


async def walk_launch(stream: bool, evict: bool) -> Walk:
    """The walk of a request for ``m`` while no engine runs or, with ``evict``, while that of ``n`` does."""
    with TemporaryDirectory() as folder:
        program = "\n".join(line for line in LAUNCHED.splitlines() if line)
        model = {"driver": "openai", "command": f"{sys.executable} -c {shlex.quote(program)} ${{port}}"}
        os.environ["ENGINEHOUSE_STATE_DIR"] = folder
        gateway = made({"models": {"m": model, "n": model}})
        gateway.build_hosts(StateFile(Path(folder, "state")))
        await gateway.start()
        await gateway.settled()
        listening, client = await connected(gateway)
        shortest: Walk | None = None
        for _ in range(LAUNCHES):
            client.ask(stream, "m" if not evict else "n")
            await client.done.wait()
            await asyncio.sleep(1)  # the first probe, and the examination of an engine
            if not evict:
                await gateway.engines.unload()
            counted = await counted_request(client, stream)
            assert b"200 OK" in client.received, client.received
            if shortest is None or counted.calls.total() < shortest.calls.total():
                shortest = counted
        client.transport.close()
        listening.close()
        await gateway.stop()
    assert shortest is not None
    return shortest


def made(config: Mapping[str, Any]) -> Gateway:
    settings = msgspec.convert(config, Config)
    return Gateway(settings, load_plugins(settings.plugins).registry)


async def connected(gateway: Gateway) -> tuple[asyncio.Server, Client]:
    loop, path = asyncio.get_running_loop(), gateway.path
    server = HttpServer(gateway.application, path.admission, path.paths, Cors(()), set(), set())
    listening = await loop.create_server(lambda: cast(asyncio.Protocol, ClientConnection(server)), "127.0.0.1", 0)
    _, client = await loop.create_connection(Client, "127.0.0.1", listening.sockets[0].getsockname()[1])
    return listening, client


async def counted_request(client: Client, stream: bool) -> Walk:
    counted = Walk()
    sys.setprofile(counted)
    client.ask(stream)
    await client.done.wait()
    await asyncio.sleep(0.01)  # the record ends after the answer
    sys.setprofile(None)
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", action="store_true", help="a streamed answer of ten events")
    parser.add_argument("--broken", action="store_true", help="a stream that an engine breaks off is continued")
    parser.add_argument("--launch", action="store_true", help="the engine is launched for the request")
    parser.add_argument("--evict", action="store_true", help="another engine is stopped for that of the request")
    parser.add_argument("--functions", action="store_true", help="list functions, not only files")
    arguments = parser.parse_args()
    launches = arguments.launch or arguments.evict
    stream, broken = arguments.stream or arguments.broken, arguments.broken
    walked = walk_launch(stream, arguments.evict) if launches else walk(stream, broken)
    calls = asyncio.run(walked).calls
    files: Counter[str] = Counter()
    for (file, _), count in calls.items():
        files[file] += count
    for file, count in files.most_common():
        print(f"{count:5} {file}")
        if arguments.functions:
            for (each, function), times in sorted(calls.items(), key=lambda item: -item[1]):
                if each == file:
                    print(f"      {times:5} {function}")
    print(f"{files.total()} calls in {len(files)} files")


if __name__ == "__main__":
    main()
