"""Measures what clients notice of workers: times to the first token with 1 and 4 of them, and how one is replaced.

``python benchmarks/worker_views.py [--rounds N] [--seconds S] [--rate R] [--workers 1,4] [--kills K]`` starts six
simulated engines, and a gateway for each number in turn, round by round. Requests arrive at random (Poisson), each on a
connection of its own and the same in every run. It prints the mean and the 99th percentile of the times to the first
byte. With ``--kills``, it then kills a worker of four K times, and prints when the load that the worker had was gone
and when another one answered in its place.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway, Status

_ENGINES = 6
_LOOK_S = 0.002


async def _first_byte(port: int, tokens: int) -> float:
    """Milliseconds from the connection to the first chunk of a stream, which is then read to its end."""
    message = [{"role": "user", "content": "Hello, world. " * 50}]
    body = json.dumps({"model": "m", "stream": True, "max_tokens": tokens, "messages": message}).encode()
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: b\r\nconnection: close\r\n")
    writer.write(b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    try:
        await reader.readuntil(b"data: ")
        took = (time.perf_counter() - began) * 1000
        await reader.read()
        return took
    finally:
        writer.close()


async def _traffic(port: int, seconds: float, rate: float, seed: int) -> list[float]:
    chance, asked = random.Random(seed), []
    end = time.perf_counter() + seconds
    due = time.perf_counter()
    while due < end:
        due += chance.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        asked.append(asyncio.ensure_future(_first_byte(port, chance.randint(10, 50))))
    return await asyncio.gather(*asked)


def _config(workers: int, engines: Sequence[SimEngine]) -> str:
    backends = [f'[backends.e{n}]\ndriver = "sim"\nurl = "{each.url}"\n' for n, each in enumerate(engines)]
    return f"[server]\nworkers = {workers}\n[telemetry]\naccess_log = false\n" + "".join(backends)


def _port(gateway: RunningGateway) -> int:
    return int(gateway.url.rpartition(":")[2])


def compare(arguments: argparse.Namespace, engines: Sequence[SimEngine]) -> None:
    """Print the times to the first byte."""
    counts = [int(each) for each in arguments.workers.split(",")]
    seen: dict[int, list[list[float]]] = {count: [] for count in counts}
    for round_ in range(arguments.rounds):
        for count in counts:
            with RunningGateway(_config(count, engines)) as gateway:
                asyncio.run(_traffic(_port(gateway), 2.0, arguments.rate, -1))
                seen[count].append(asyncio.run(_traffic(_port(gateway), arguments.seconds, arguments.rate, round_)))
    print("workers, mean and p99 in ms (of each round)")
    for count, rounds in seen.items():
        every = [each for times in rounds for each in times]
        print(count, *(f" {figure(every):.0f} ({_each(figure, rounds)})" for figure in (statistics.mean, _p99)))


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


def _each(figure: Callable[[Sequence[float]], float], rounds: Sequence[Sequence[float]]) -> str:
    return ", ".join(f"{figure(times):.0f}" for times in rounds)


def deaths(kills: int, engines: Sequence[SimEngine]) -> None:
    """Print how long the load of a killed worker is seen, and how long its place is empty."""
    cleared, replaced = [], []
    with RunningGateway(_config(4, engines)) as gateway:
        for _ in range(kills):
            loop = asyncio.new_event_loop()
            streams = [loop.create_task(_first_byte(_port(gateway), 1000)) for _ in range(24)]
            loop.run_until_complete(asyncio.sleep(1.0))
            before = gateway.status()
            victim = max(before["workers"], key=lambda each: each["requests"])
            began = time.perf_counter()
            os.kill(victim["pid"], signal.SIGKILL)
            left = before["requests"] - victim["requests"]
            cleared.append(_until(gateway, began, partial(_holds_at_most, left)))
            replaced.append(_until(gateway, began, partial(_has_replaced, victim["pid"])))
            for each in streams:
                each.cancel()
            loop.run_until_complete(asyncio.gather(*streams, return_exceptions=True))
            loop.run_until_complete(asyncio.sleep(0.1))
            loop.close()
            gateway.until(lambda status: status["requests"] == 0)
    for what, times in (("load cleared", cleared), ("replaced", replaced)):
        print(f"{what}: {statistics.median(times):.0f} ms, at most {max(times):.0f} ms, of {kills} kills")


def _holds_at_most(most: int, status: Status) -> bool:
    return sum(int(each["pending"]) for each in status["backends"]) <= most


def _has_replaced(pid: int, status: Status) -> bool:
    workers = {each["pid"]: each["config_version"] for each in status["workers"]}
    return pid not in workers and len(workers) == 4 and all(workers.values())


def _until(gateway: RunningGateway, began: float, holds: Callable[[Status], bool]) -> float:
    while True:
        try:
            if holds(gateway.status()):
                return (time.perf_counter() - began) * 1000
        except OSError:
            pass  # that worker was killed
        time.sleep(_LOOK_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--workers", default="1,4")
    parser.add_argument("--kills", type=int, default=0)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        engines = [
            stack.enter_context(SimEngine("m", ttft="20ms", tpot="20ms", concurrency=8)) for _ in range(_ENGINES)
        ]
        if arguments.rounds:
            compare(arguments, engines)
        if arguments.kills:
            deaths(arguments.kills, engines)


if __name__ == "__main__":
    main()
