"""Many requests at once for a real llama-server that does not run yet: through the gateway, and straight at the engine.

``python benchmarks/cold_engine.py [--clients 50 200] [--rounds N]`` needs ``make engines``. In each round, the gateway
or this program launches the engine for the burst, with the same launch line. Without the gateway, the clients ask
``/health`` every 10 ms, and send their requests when it answers 200. All times begin when the clients want their
answers, so both include the load of the model. The program prints medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from contenders import free_port
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from enginehouse_kit.gateway import RunningGateway
from tests.support.real_engines import RealEngine, find_llama_server

ARGS = ["-t", "1", "--no-warmup", "-np", "4"]
CONTEXT = 4096
BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}).encode()


async def answer(port: int, request: bytes) -> int:
    """Send ``request`` on a connection of its own, and read the answer to its end. Return its status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    said = await reader.read()
    writer.close()
    return int(said.split(b" ", 2)[1])


async def one(port: int, began: float) -> float:
    """Send the request. Return the seconds from ``began`` to the end of its answer."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(BODY)}"
    status = await answer(port, head.encode() + b"\r\ncontent-type: application/json\r\n\r\n" + BODY)
    if status != 200:
        raise SystemExit(f"a request was answered {status}")
    return time.perf_counter() - began


async def healthy(port: int) -> None:
    while True:
        try:
            if await answer(port, b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n") == 200:
                return
        except (OSError, IndexError):
            pass
        await asyncio.sleep(0.01)


async def burst(port: int, clients: int, began: float, wait: bool) -> Sequence[float]:
    if wait:
        await healthy(port)
    return await asyncio.gather(*(one(port, began) for _ in range(clients)))


def straight(engine: RealEngine, clients: int) -> Sequence[float]:
    port = free_port()
    command = [str(engine.program), "-m", str(engine.model), "--port", str(port), "-c", str(CONTEXT), *ARGS]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return asyncio.run(burst(port, clients, began, wait=True))
    finally:
        process.kill()
        process.wait()


def through_gateway(engine: RealEngine, clients: int) -> Sequence[float]:
    config = f"""
[models.tiny]
driver = "llamacpp"
path = "{engine.model}"
args = {json.dumps(ARGS)}
context_length = {CONTEXT}
"""
    path = f"{engine.program.parent}{os.pathsep}{os.environ['PATH']}"
    with RunningGateway(config, {"PATH": path}) as gateway:
        port = int(gateway.url.rpartition(":")[2])
        return asyncio.run(burst(port, clients, time.perf_counter(), wait=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    engine = find_llama_server()
    if engine is None:
        raise SystemExit("no llama-server is installed: run `make engines`")
    table = Table("clients", "", "p50 [ms]", "max [ms]")
    for clients in arguments.clients:
        rounds: dict[str, list[Sequence[float]]] = {"straight": [], "gateway": []}
        for _ in range(arguments.rounds):
            rounds["straight"].append(straight(engine, clients))
            rounds["gateway"].append(through_gateway(engine, clients))
        figures = {
            name: (statistics.median(map(statistics.median, times)), statistics.median(map(max, times)))
            for name, times in rounds.items()
        }
        for name, (p50, most) in figures.items():
            table.add_row(str(clients), name, f"{p50 * 1000:.0f}", f"{most * 1000:.0f}")
        ratios = [ours / theirs for ours, theirs in zip(figures["gateway"], figures["straight"], strict=True)]
        table.add_row(str(clients), "ratio", *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)


if __name__ == "__main__":
    main()
