"""Runs the soak: ``python -m tests.soak [--minutes 15] [--clients 24] [--seed 1]``.

It prints what clients saw, what was done to the engines and what the gateway held, and exits with 1 if that is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from contextlib import ExitStack

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.soak.clients import Client, Tally, expected_answers
from tests.soak.faults import Faults
from tests.soak.flooding import FloodingEngine
from tests.support import plain_httpx

ENGINES = ("a", "b", "c", "d")
_SAMPLE_S = 5.0
_SETTLE_S = 10.0
_RULES = """
[timeouts]
connect = "2s"
first_byte = "10s"
stall = "3s"
[checks]
interval = "1s"
timeout = "1s"
failures = 2
[backends.flood]
url = "{flood}"
driver = "vllm"
models = ["flood"]
"""
_BACKEND = """
[backends.{name}]
url = "{url}"
driver = "sim"
models = ["m"]
weight = {weight}
"""


class Resources:
    """Samples of the gateway's resident memory, file descriptors and threads."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._began = time.monotonic()
        self.samples: list[tuple[float, float, int, int]] = []

    def sample(self) -> None:
        process = self._process
        memory = process.memory_info().rss / 2**20
        minutes = (time.monotonic() - self._began) / 60
        self.samples.append((minutes, memory, process.num_fds(), process.num_threads()))

    async def watch(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(_SAMPLE_S)

    def table(self) -> Table:
        table = Table("of the gateway", "first", "last", "most", "slope of the last two thirds, a minute")
        kept = self.samples[len(self.samples) // 3 :]
        for column, name in enumerate(("resident memory [MiB]", "file descriptors", "threads"), 1):
            values = [sample[column] for sample in self.samples]
            slope = statistics.linear_regression([each[0] for each in kept], [each[column] for each in kept]).slope
            table.add_row(name, *(f"{value:.1f}" for value in (values[0], values[-1], max(values))), f"{slope:+.3f}")
        return table


def configuration(engines: dict[str, SimEngine], flood: str, rng: random.Random) -> str:
    """Each call makes another configuration, for reloads."""
    tables = (_BACKEND.format(name=name, url=each.url, weight=rng.randint(1, 9)) for name, each in engines.items())
    return _RULES.format(flood=flood) + "".join(tables)


async def soak(options: argparse.Namespace, stack: ExitStack) -> bool:
    rng = random.Random(options.seed)
    reference = stack.enter_context(SimEngine("m"))
    engines = {name: stack.enter_context(SimEngine("m", tpot="10ms")) for name in ENGINES}
    flooding = FloodingEngine()
    await flooding.start()
    gateway = stack.enter_context(RunningGateway(configuration(engines, flooding.url, rng)))
    await asyncio.to_thread(gateway.until_health, **dict.fromkeys(ENGINES, "healthy"))
    tally, resources = Tally(), Resources(gateway.pid)
    async with plain_httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=4 * options.clients)) as http:
        expected = await expected_answers(http, reference.url)
        clients = [
            Client(http, gateway.url, expected, tally, random.Random(rng.random())) for _ in range(options.clients)
        ]
        faults = Faults(http, gateway, engines, lambda: configuration(engines, flooding.url, rng), rng)
        running = [asyncio.ensure_future(each.run()) for each in clients]
        running += [asyncio.ensure_future(faults.run()), asyncio.ensure_future(resources.watch())]
        done, _ = await asyncio.wait(running, timeout=60 * options.minutes, return_when=asyncio.FIRST_EXCEPTION)
        for client in clients:
            client.leave()
        await asyncio.gather(*running[: len(clients)])
        for task in running[len(clients) :]:
            task.cancel()
        await asyncio.gather(*running[len(clients) :], return_exceptions=True)
        await faults.heal()
        await asyncio.to_thread(gateway.until_health, **dict.fromkeys(ENGINES, "healthy"))
        after = Tally()
        await asyncio.gather(*(Client(http, gateway.url, expected, after, rng).ask_whole(each) for each in expected))
        live = (await http.get(f"{gateway.url}/api/requests")).json()["requests"]
    flooding.stop()
    await asyncio.sleep(_SETTLE_S)
    resources.sample()
    for each in done:
        each.result()
    report(tally, after, faults.done, resources)
    traces = sum("Traceback" in line for line in gateway.log.splitlines())
    print(
        f"after the faults: {after.outcomes['whole']} of {len(expected)} whole, {len(live)} live; tracebacks: {traces}"
    )
    print(*tally.wrong[:10], *after.wrong[:10], sep="\n")
    return not (tally.wrong or after.wrong or live or traces or after.outcomes["whole"] < len(expected))


def report(tally: Tally, after: Tally, faults: Counter[str], resources: Resources) -> None:
    console = Console(width=120)
    for name, counts in (("requests", tally.outcomes), ("faults and acts", faults)):
        table = Table(name, "count")
        for each, count in sorted(counts.items()):
            table.add_row(each, str(count))
        console.print(table)
    console.print(resources.table())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    with ExitStack() as stack:
        right = asyncio.run(soak(parser.parse_args(), stack))
    sys.exit(0 if right else 1)


main()
