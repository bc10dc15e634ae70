"""What looking at long prompts costs: microseconds for one request, by the engines that have its beginning.

``python benchmarks/long_prompts.py [--characters N] [--messages N]``: the fastest of 30 rounds of reading the prompt
into chunks, looking it up, and noting it. The index serves all engines, so their number hardly counts. Then the
processor time of whole requests, through gateways with either strategy in alternating rounds, before four backends.
Linux only.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from time import clock_gettime, process_time

import click
from bursts import Client, CountingEngine
from rich.console import Console
from rich.table import Table

from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.prefixes import Prompt
from enginehouse_routing.shared_index import SharedPrefixIndex

_ROUNDS = 30
_TIMES = 10
_ROOM = 1_000_000
_STRATEGIES = ("round_robin", "cache_aware")
_REQUESTS = 200
_PASSES = 12


def measured(text: str, engines: int) -> tuple[float, float, float]:
    """Microseconds for chunks, look-up and note, with so many ``engines`` that have all of ``text``."""
    index = SharedPrefixIndex()
    for number in range(engines):
        index.note(f"engine-{number}", Prompt("m", text), _ROOM)
    rounds = []
    for _ in range(_ROUNDS):
        began = process_time()
        for _ in range(_TIMES):
            prompt = Prompt("m", text)
        cut = process_time()
        for _ in range(_TIMES):
            index.leading(prompt)
        looked = process_time()
        for _ in range(_TIMES):
            index.note("engine-0", prompt, _ROOM)
        rounds.append((cut - began, looked - cut, process_time() - looked))
    chunks, look, note = (min(each) * 1e6 / _TIMES for each in zip(*rounds, strict=True))
    return chunks, look, note


def bodies_with(text: str, messages: int) -> list[bytes]:
    """Requests with ``text``, in so many ``messages``, and a few words of their own."""
    size = -(-len(text) // messages)
    parts = [text[begin : begin + size] for begin in range(0, len(text), size)]
    bodies = []
    for number in range(_REQUESTS):
        contents = [*parts[:-1], f"{parts[-1]} {number}"]
        chat = [{"role": "assistant" if place % 2 else "user", "content": each} for place, each in enumerate(contents)]
        bodies.append(json.dumps({"model": "m", "messages": chat}).encode())
    return bodies


async def through_gateways(bodies: Sequence[bytes]) -> Table:
    """The processor time of a gateway for each of the requests, with either strategy."""
    engine = CountingEngine()
    server = await engine.start(None)
    table = Table("strategy", "processor time of a request, µs: median", "least", "most")
    backend = f'driver = "openai"\nurl = "{engine.url}"\nmodels = ["m"]\n'
    backends = "".join(f"[backends.{name}]\n{backend}" for name in "abcd")
    with ExitStack() as stack:
        gateways: dict[str, RunningGateway] = {}
        for strategy in _STRATEGIES:
            config = f'[telemetry]\naccess_log = false\n[routing]\nstrategy = "{strategy}"\n{backends}'
            gateways[strategy] = await asyncio.to_thread(stack.enter_context, RunningGateway(config))
            await asyncio.to_thread(gateways[strategy].until_health, a="healthy", b="healthy", c="healthy", d="healthy")
        found: dict[str, list[float]] = {strategy: [] for strategy in _STRATEGIES}
        for _ in range(_PASSES):
            for strategy, gateway in gateways.items():
                found[strategy].append(await _time_of_a_request(gateway, bodies))
    server.close()
    base, looking = (times[1:] for times in found.values())  # connections are made in the first
    more = [mine - other for mine, other in zip(looking, base, strict=True)]
    for name, times in zip((*_STRATEGIES, "difference"), (base, looking, more), strict=True):
        table.add_row(name, *(f"{each:.0f}" for each in (statistics.median(times), min(times), max(times))))
    return table


async def _time_of_a_request(gateway: RunningGateway, bodies: Sequence[bytes]) -> float:
    client = Client(int(gateway.url.rpartition(":")[2]))
    clock = (~gateway.pid << 3) | 2  # what clock_getcpuclockid(3) returns: all threads of the process, in nanoseconds
    before = clock_gettime(clock)
    for body in bodies:
        await client.ask(body)
    client.close()
    return 1e6 * (clock_gettime(clock) - before) / len(bodies)


@click.command()
@click.option("--characters", default=200_000, show_default=True)
@click.option("--messages", default=1, show_default=True)
def main(characters: int, messages: int) -> None:
    """Print a table."""
    text = "".join(random.Random(1).choices("abcdefghij klmnop", k=characters))
    table = Table("engines", "chunks, µs", "look-up, µs", "note, µs", "together, µs")
    for engines in (1, 4, 100):
        parts = measured(text, engines)
        table.add_row(str(engines), *(f"{each:.0f}" for each in (*parts, sum(parts))))
    Console().print(table)
    index = SharedPrefixIndex()
    index.note("engine", Prompt("m", text), _ROOM)
    known = index.leading(Prompt("m", text)).get("engine", 0)
    Console().print(f"{4 * known:,} of {characters:,} characters are recognised")
    Console().print(asyncio.run(through_gateways(bodies_with(text, messages))))


if __name__ == "__main__":
    main()
