"""What bursts of requests cost the gateway: new connections to the engine, and processor time.

``python benchmarks/bursts.py [--sizes 8,16,32,128] [--rounds 3] [--bursts 30] [--tls] [--engine URL]``: for each size,
so many requests at once every 100 ms, through a gateway in a process of its own to an engine in this one. The gateway
keeps as many idle connections as the driver of the engine lets it: ``openai`` sets no limit, ``llamacpp`` one of four,
because each holds a thread of llama-server. Rounds with either alternate. With ``--tls``, the gateway speaks TLS to the
engine. With ``--engine``, a running server answers, such as ``llama-server -m tiny.gguf --parallel 8``; its
connections are not counted.
"""

from __future__ import annotations

import asyncio
import ssl
import statistics
from contextlib import ExitStack
from time import perf_counter
from typing import NamedTuple

import click
import psutil
import trustme
from rich.console import Console
from rich.table import Table

from enginehouse_kit.gateway import RunningGateway

_EVERY_S = 0.1
_DRIVERS = ("openai", "llamacpp")
_ANSWER = b'{"object":"chat.completion","choices":[]}'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_RESPONSE = _HEAD % len(_ANSWER) + _ANSWER
_BODY = b'{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":1}'


class CountingEngine:
    """Answers in the running event loop. ``connections``: how many were opened."""

    def __init__(self) -> None:
        self.connections = 0
        self.url = ""

    async def start(self, tls: ssl.SSLContext | None) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024, ssl=tls)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await _request(reader):
                writer.write(_RESPONSE)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # the last one at the end
            pass
        finally:
            writer.close()


def certified() -> ssl.SSLContext:
    """A TLS context for a server. Its certificate is signed by itself, so clients must not verify it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    await reader.readexactly(length)
    return head


class Client:
    """One kept connection to the gateway."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: bytes = _BODY) -> None:
        """Send a request, and read its answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body))
        answer = await _request(reader)
        assert answer.startswith(b"HTTP/1.1 200"), answer

    def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()


class Figures(NamedTuple):
    """Of some bursts: the new connections, the gateway's processor time of a request in microseconds, and seconds.

    The seconds are those until all of a burst is answered: the median, and the longest.
    """

    connections: int
    used: float
    median: float
    longest: float


async def measured(gateway: RunningGateway, engine: CountingEngine, size: int, bursts: int) -> Figures:
    """Send so many ``bursts`` of this ``size``."""
    process = psutil.Process(gateway.pid)
    clients = [Client(int(gateway.url.rpartition(":")[2])) for _ in range(size)]
    await asyncio.gather(*(each.ask() for each in clients))
    before, spent = engine.connections, sum(process.cpu_times()[:2])
    took = []
    for _ in range(bursts):
        pause, began = asyncio.ensure_future(asyncio.sleep(_EVERY_S)), perf_counter()
        await asyncio.gather(*(each.ask() for each in clients))
        took.append(perf_counter() - began)
        await pause
    used = (sum(process.cpu_times()[:2]) - spent) / (bursts * size)
    for each in clients:
        each.close()
    return Figures(engine.connections - before, used * 1e6, statistics.median(took), max(took))


async def main(sizes: list[int], rounds: int, bursts: int, tls: bool, url: str) -> None:
    """Print a table."""
    engine = CountingEngine()
    server = await engine.start(certified() if tls else None)
    engine.url = url or engine.url
    found: dict[tuple[int, str], list[Figures]] = {}
    with ExitStack() as stack:
        gateways = {}
        for driver in _DRIVERS:
            backend = f'driver = "{driver}"\nurl = "{engine.url}"\nverify_tls = false\nmodels = ["m"]\n'
            config = f"[telemetry]\naccess_log = false\n[backends.a]\n{backend}"
            gateways[driver] = await asyncio.to_thread(stack.enter_context, RunningGateway(config))
            await asyncio.to_thread(gateways[driver].until_health, a="healthy")
        for _ in range(rounds):
            for size in sizes:
                for driver in _DRIVERS:
                    found.setdefault((size, driver), []).append(await measured(gateways[driver], engine, size, bursts))
    server.close()
    columns = ("at once", "limit", f"new connections of {bursts} bursts", "processor time of a request, µs")
    table = Table(*columns, "until a burst is answered, ms: median", "longest")
    for (size, driver), each in found.items():
        counts, times = [one.connections for one in each], [one.used for one in each]
        connections = "unknown" if url else f"{min(counts)}-{max(counts)} of {bursts * size}"
        spread = f"{statistics.median(times):.0f} ({min(times):.0f}-{max(times):.0f})"
        until = f"{1e3 * statistics.median(one.median for one in each):.1f}"
        longest = f"{1e3 * max(one.longest for one in each):.0f}"
        table.add_row(str(size), "none" if driver == "openai" else "4", connections, spread, until, longest)
    Console().print(table)


@click.command()
@click.option("--sizes", default="8,16,32,128", show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--bursts", default=30, show_default=True)
@click.option("--tls", is_flag=True)
@click.option("--engine", default="", help="The URL of a running engine, instead of one that only counts.")
def command(sizes: str, rounds: int, bursts: int, tls: bool, engine: str) -> None:
    """Measure bursts."""
    asyncio.run(main([int(size) for size in sizes.split(",")], rounds, bursts, tls, engine))


if __name__ == "__main__":
    command()
