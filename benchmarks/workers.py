"""Measures the processor time of a request with 1, 2 and 4 workers, and that of the owner.

``python benchmarks/workers.py [--rounds N] [--seconds S] [--workers 1,2,4] [--streams N] [--paced R]`` starts a gateway
for each number in turn, round by round, in front of an engine that answers at once, and asks it over 32 connections for
each worker: a loop that wakes for fewer at once spends more on each. It prints the medians over the rounds with
their spread: processor time of a request in all of the gateway's processes, and in the owner alone, and the requests a
second with client and engine on the same cores. ``--streams``: of 100 chunks each, at once, instead of short requests.
``--paced``: so many requests a second at most, for the owner's share.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from enginehouse.testing.gateway import RunningGateway

_ANSWER = b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}]}'
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_ANSWER), _ANSWER)
_EVENT = b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
_CHUNK = b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_CHUNKS = 100
_CONNECTIONS = 32


class _Engine(asyncio.Protocol):
    """Answers every request that ends within one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if b'"stream":true' in data:
            self.transport.write(_STREAM)
            self._send(_CHUNKS)
        else:
            self.transport.write(_WHOLE)

    def _send(self, left: int) -> None:
        if left:
            self.transport.write(_CHUNK)
            asyncio.get_running_loop().call_later(0.01, self._send, left - 1)
        else:
            self.transport.write(_END)


class _Client(asyncio.Protocol):
    """Asks again and again over one connection, at most ``pace`` times a second."""

    def __init__(self, body: bytes, end: bytes, counts: list[int], pace: float) -> None:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\ncontent-length: %d"
        self.request = head % len(body) + b"\r\n\r\n" + body
        self.end, self.counts, self.pause = end, counts, 1 / pace if pace else 0.0
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.WriteTransport = transport  # type: ignore[assignment]
        self.ask()

    def ask(self) -> None:
        self.due = time.monotonic() + self.pause
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.received = (self.received + data)[-256:]
        if self.received.endswith(self.end):
            self.received = b""
            self.counts[0] += 1
            asyncio.get_running_loop().call_later(max(0.0, self.due - time.monotonic()), self.ask)


def run_engine(port: multiprocessing.Queue[int]) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Engine, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def ask(port: int, seconds: float, workers: int, streams: int, pace: float) -> int:
    """The number of answers in so many seconds."""
    body = b'{"model":"bench","messages":[{"role":"user","content":"Hello, world"}],"max_tokens":16}'
    end, counts, connections = _ANSWER[-32:], [0], streams or _CONNECTIONS * workers
    if streams:
        body, end = body[:-1] + b',"stream":true}', b"0\r\n\r\n"
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: _Client(body, end, counts, pace / connections), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    return counts[0]


class Figures(NamedTuple):
    """Microseconds of the processor for a request in all processes and in the owner; requests a second."""

    request_us: float
    owner_us: float
    rate: float


def measure(workers: int, engine: int, arguments: argparse.Namespace) -> Figures:
    config = f"""
[server]
workers = {workers}
[telemetry]
access_log = false
[backends.a]
url = "http://127.0.0.1:{engine}"
models = ["bench"]
[checks]
interval = "1h"
"""
    with RunningGateway(config) as gateway:
        port = int(gateway.url.rpartition(":")[2])
        asyncio.run(ask(port, 1.0, workers, arguments.streams, arguments.paced))
        owner = psutil.Process(gateway.pid)
        processes = [owner, *owner.children(recursive=True)]
        before = [sum(each.cpu_times()[:2]) for each in processes]
        answers = asyncio.run(ask(port, arguments.seconds, workers, arguments.streams, arguments.paced))
        spent = [sum(each.cpu_times()[:2]) - then for each, then in zip(processes, before, strict=True)]
        return Figures(sum(spent) * 1e6 / answers, spent[0] * 1e6 / answers, answers / arguments.seconds)


def shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):9.1f} ({min(values):.1f}-{max(values):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--paced", type=float, default=0.0)
    arguments = parser.parse_args()
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    engine = multiprocessing.Process(target=run_engine, args=(ports,), daemon=True)
    engine.start()
    port, counts = ports.get(), [int(each) for each in arguments.workers.split(",")]
    seen: dict[int, list[Figures]] = {count: [] for count in counts}
    for _ in range(arguments.rounds):
        for count in counts:
            seen[count].append(measure(count, port, arguments))
    print("workers  us/request (spread)        us/request of the owner    requests/s")
    for count, figures in seen.items():
        print(f"{count:7}", *(shown([each[column] for each in figures]) for column in range(3)), sep="  ")
    engine.terminate()


if __name__ == "__main__":
    main()
