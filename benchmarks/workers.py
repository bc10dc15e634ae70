"""Measures the processor time of a request with 1, 2 and 4 workers, and that of the owner.

``python benchmarks/workers.py [--rounds N] [--seconds S] [--workers 1,2] [--streams N] [--paced R] [--wrk] [--beside]``
starts a gateway for each number in turn, round by round, in front of an engine that answers at once, and asks it over
32 connections for each worker. It prints the medians over the rounds with their spread: processor time of a request in
all of the gateway's processes, and in the owner alone, and the requests a second with client and engine on the same
cores. ``--streams``: so many for each worker at once, of 100 chunks, instead of short requests. ``--paced``: so many
requests a second at most, for the owner's share. ``--wrk``: let ``wrk`` ask, which takes so little of the cores that
the gateway is what is busy: with the clients of this file, two workers often wait, and a loop that wakes for one
request spends more on it. ``--beside``: measure also as many gateways of one process, side by side. What these cost
more than one alone is the machine's doing, which they share.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import psutil

from enginehouse_kit.gateway import RunningGateway

_ANSWER = b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}]}'
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_ANSWER), _ANSWER)
_EVENT = b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
_CHUNK = b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_END = _ANSWER[-32:]
_CHUNKS = 100
_CONNECTIONS = 32
_BODY = b'{"model":"bench","messages":[{"role":"user","content":"Hello, world"}],"max_tokens":16}'


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
        if self.transport.is_closing():
            return
        if left:
            self.transport.write(_CHUNK)
            asyncio.get_running_loop().call_later(0.01, self._send, left - 1)
        else:
            self.transport.write(_LAST)


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


def ask(port: int, seconds: float, workers: int, arguments: argparse.Namespace) -> int:
    """The number of answers in so many seconds."""
    streams: int = arguments.streams
    connections = (streams or _CONNECTIONS) * workers
    body = _BODY[:-1] + b',"stream":true}' if streams else _BODY
    if arguments.wrk:
        return _wrk(port, seconds, connections, body)
    return asyncio.run(_ask(port, seconds, connections, body, b"0\r\n\r\n" if streams else _END, arguments.paced))


def _wrk(port: int, seconds: float, connections: int, body: bytes) -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(f"wrk.method, wrk.body = 'POST', '{body.decode()}'\n")
        script.write("wrk.headers['content-type'] = 'application/json'\n")
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "-s", script.name]
        said = subprocess.run(
            [*command, f"http://127.0.0.1:{port}/v1/chat/completions"], capture_output=True, text=True, check=True
        ).stdout
    if "Non-2xx" in said:
        raise RuntimeError(said)
    return int(said.partition(" requests in")[0].split()[-1])


async def _ask(port: int, seconds: float, connections: int, body: bytes, end: bytes, pace: float) -> int:
    counts = [0]
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


def measure(workers: int, gateways: int, engine: int, arguments: argparse.Namespace) -> Figures:
    """The figures of so many ``gateways`` together, which are asked at the same time."""
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
    with ExitStack() as stack, ThreadPoolExecutor(gateways) as pool:
        started = [stack.enter_context(RunningGateway(config)) for _ in range(gateways)]
        ports = [int(each.url.rpartition(":")[2]) for each in started]

        def asked(seconds: float) -> int:
            return sum(pool.map(lambda port: ask(port, seconds, workers, arguments), ports))

        asked(1.0)
        owners = [psutil.Process(each.pid) for each in started]
        processes = [*owners, *(child for owner in owners for child in owner.children(recursive=True))]
        before = [sum(each.cpu_times()[:2]) for each in processes]
        answers = asked(arguments.seconds)
        spent = [sum(each.cpu_times()[:2]) - then for each, then in zip(processes, before, strict=True)]
        owned = sum(spent[:gateways]) * 1e6 / answers
        return Figures(sum(spent) * 1e6 / answers, owned, answers / arguments.seconds)


def shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):9.1f} ({min(values):.1f}-{max(values):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--wrk", action="store_true")
    parser.add_argument("--paced", type=float, default=0.0)
    arguments = parser.parse_args()
    if arguments.wrk and shutil.which("wrk") is None:
        parser.error("wrk is not installed")
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    engine = multiprocessing.Process(target=run_engine, args=(ports,), daemon=True)
    engine.start()
    port, counts = ports.get(), [int(each) for each in arguments.workers.split(",")]
    kinds = [(count, 1) for count in counts] + [(1, count) for count in counts if count > 1 and arguments.beside]
    seen: dict[tuple[int, int], list[Figures]] = {kind: [] for kind in kinds}
    for _ in range(arguments.rounds):
        for kind in kinds:
            seen[kind].append(measure(*kind, port, arguments))
            print(*kind, *(round(each, 1) for each in seen[kind][-1]), file=sys.stderr, flush=True)
    print("workers  gateways  us/request (spread)        us/request of the owner    requests/s")
    for (workers, gateways), figures in seen.items():
        columns = [shown([each[column] for each in figures]) for column in range(3)]
        print(f"{workers:7}  {gateways:8}", *columns, sep="  ")
    engine.terminate()


if __name__ == "__main__":
    main()
