"""Measures what traces cost a request: the way through the gateway and back, as a client sees it.

``python benchmarks/traced.py [--rounds N] [--seconds S] [--rate R] [--compiled PYTHON]`` asks the engine itself, and
the gateway without traces and with all requests traced, in turn: over 1 and over 16 connections, ``--rate`` requests
per second together, so that the exporter keeps up and every request is traced. It prints the times of all rounds, what
the gateway adds to those of the engine, and how many requests were not traced for lack of room. Needs Linux with two
cores; a quiet machine helps.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import cast
from urllib.parse import urlsplit

from contenders import CORES, Measured, Own, contenders, fast_engine
from rich.console import Console
from rich.table import Table

from enginehouse_bench.clients import Question
from enginehouse_bench.contenders import pinned, taking_turns, turn
from enginehouse_bench.rounds import warm_up

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_DROPPED = re.compile(r"^enginehouse_traces_dropped_total(?:{.*})? ([0-9.]+)$", re.MULTILINE)
_CONNECTIONS = (1, 16)
Waits = dict[tuple[int, str], list[float]]
"""The seconds from each request to the end of its answer, by connections and contender."""


class _PacedClient(asyncio.Protocol):
    """Sends a request each ``every`` seconds, ``count`` times, or when the last answer is there if that is later."""

    def __init__(self, wires: Iterator[bytes], every: float, count: int, waits: list[float]) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._wires, self._every, self._left, self._waits = wires, every, count, waits
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)
        self._answer = b""
        self._due = self._loop.time()
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if end and length is not None and len(body) >= int(length[1]):
            self._waits.append(perf_counter() - self._sent)
            if not head.startswith(b"HTTP/1.1 200 "):
                raise SystemExit(head.decode())
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed before the last answer"))

    def _next(self) -> None:
        self._left -= 1
        if self._left:
            self._due += self._every
            self._loop.call_at(self._due, self._send)
        else:
            self.done.set_result(None)
            self._transport.close()

    def _send(self) -> None:
        self._answer, self._sent = b"", perf_counter()
        self._transport.write(next(self._wires))


async def paced(url: str, connections: int, rate: float, seconds: float) -> list[float]:
    """Send ``rate`` requests per second over ``connections`` together. Returns how long each took."""
    waits: list[float] = []
    parts, wires = urlsplit(url), Question("bench").wires(url, stream=False)
    every, count = connections / rate, max(1, int(seconds * rate / connections))
    clients = []
    for _ in range(connections):
        _, client = await asyncio.get_running_loop().create_connection(
            lambda: _PacedClient(wires, every, count, waits), parts.hostname or "", parts.port or 80
        )
        clients.append(client)
        await asyncio.sleep(every / connections)
    await asyncio.gather(*(each.done for each in clients))
    return waits


def dropped(measured: Measured) -> float:
    """How many requests the gateway did not trace for lack of room."""
    page = urllib.request.urlopen(f"{measured.contender.url}/metrics").read().decode()
    return sum(map(float, _DROPPED.findall(page)))


def measure(found: list[Measured], arguments: argparse.Namespace) -> tuple[Waits, dict[str, float]]:
    """The times of all requests, and how many requests each gateway did not trace."""
    waits: Waits = defaultdict(list)
    untraced: dict[str, float] = {}
    with taking_turns([each.contender for each in found]):
        for number in range(arguments.rounds):
            for each in [*found[number % len(found) :], *found[: number % len(found)]]:
                name = each.contender.name
                with turn(each.contender):
                    warm_up(each.contender, Question("bench"))
                    before = 0.0 if name == "direct" else dropped(each)
                    for count in _CONNECTIONS:
                        waits[count, name] += asyncio.run(
                            paced(each.contender.url, count, arguments.rate, arguments.seconds)
                        )
                    if name != "direct":
                        untraced[name] = untraced.get(name, 0.0) + dropped(each) - before
    return waits, untraced


def table(waits: Waits, untraced: dict[str, float]) -> Table:
    """The times in µs, each with what it is more than the engine's own."""
    printed = Table("connections", "", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "requests", "not traced")
    for (connections, name), seen in waits.items():
        figures, floor = _quantiles(seen), _quantiles(waits[connections, "direct"])
        added = [f"{own:,.0f} (+{own - engine:,.0f})" for own, engine in zip(figures, floor, strict=True)]
        printed.add_row(str(connections), name, *added, str(len(seen)), f"{untraced.get(name, 0):.0f}")
    return printed


def _quantiles(seen: list[float]) -> list[float]:
    parts = quantiles(seen, n=1000)
    return [1e6 * parts[at] for at in (499, 899, 989, 998)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3, help="of requests in each round, for each workload")
    parser.add_argument("--rate", type=float, default=400, help="requests per second")
    parser.add_argument("--compiled", metavar="PYTHON", help="an interpreter with a compiled Enginehouse")
    arguments = parser.parse_args()
    own = [Own("pure", sys.executable, variants=True)]
    if arguments.compiled:
        own.append(Own("compiled", arguments.compiled, variants=True))
    with (
        tempfile.TemporaryDirectory() as folder,
        fast_engine(Path(folder)) as url,
        contenders(url, own, [], "") as everyone,
        pinned(CORES.clients),
    ):
        sampled = {each.name for each in own}  # of 1 % of the requests
        waits, untraced = measure([each for each in everyone if each.contender.name not in sampled], arguments)
    Console(width=150).print(table(waits, untraced))


if __name__ == "__main__":
    main()
