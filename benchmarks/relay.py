"""The relay against the direct path and, where it is installed, against vllm-router; all in one run, on pinned cores.

``python benchmarks/relay.py [--rounds N] [--seconds S] [--vllm-router PROGRAM]`` prints, for each contender: requests
a second over 32 connections, the latency over one, and the processor time of each chunk of 300 concurrent streams.
Rounds alternate between the contenders; the medians are printed. Needs ``wrk`` and Linux; a quiet machine helps.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from contenders import ENGINE_CORE, Contender, cpu_seconds, enginehouse, fast_engine, small_engine, vllm_router
from rich.console import Console
from rich.table import Table

BODY = '{"model":"bench","messages":[{"role":"user","content":"Hello, world"}],"max_tokens":16%s}'
POST = f"""
wrk.method = "POST"
wrk.body = '{BODY % ""}'
wrk.headers["Content-Type"] = "application/json"
done = function(summary, latency, requests)
  io.write(string.format("requests %d errors %d p50 %d\\n", summary.requests,
    summary.errors.status + summary.errors.connect + summary.errors.read, latency:percentile(50)))
end
"""
STREAMS = 300
Figures = dict[str, dict[str, list[float]]]


def wrk(contender: Contender, connections: int, seconds: int, script: Path) -> tuple[float, float, float]:
    """Requests a second, median latency and processor time of each request, in microseconds."""
    before = cpu_seconds(contender.pid)
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "-s",
        str(script),
        f"{contender.url}/v1/chat/completions",
    ]
    told = subprocess.run(
        ["taskset", "-c", str(ENGINE_CORE), *command], check=True, capture_output=True, text=True
    ).stdout
    spent = cpu_seconds(contender.pid) - before
    found = re.search(r"requests (\d+) errors (\d+) p50 (\d+)", told)
    rate = re.search(r"Requests/sec:\s*([\d.]+)", told)
    if found is None or rate is None or int(found[2]):
        raise SystemExit(f"{contender.name}: {told}")
    return float(rate[1]), float(found[3]), spent / int(found[1]) * 1e6


async def read_stream(url: str) -> int:
    """Read one stream to its end; the number of its events."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = BODY % ',"stream":true'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
    events = 0
    while not (piece := await reader.read(65536)).endswith(b"0\r\n\r\n"):
        if not piece:
            raise SystemExit(f"{url} broke off a stream")
        events += piece.count(b"data: ")
    writer.close()
    return events + piece.count(b"data: ") - 1


async def streams(contender: Contender) -> tuple[float, float]:
    """Chunks a second, and processor time of each in microseconds, over all concurrent streams."""
    before, began = cpu_seconds(contender.pid), asyncio.get_running_loop().time()
    chunks = sum(await asyncio.gather(*(read_stream(contender.url) for _ in range(STREAMS))))
    took = asyncio.get_running_loop().time() - began
    return chunks / took, (cpu_seconds(contender.pid) - before) / chunks * 1e6


def measure(arguments: argparse.Namespace) -> Figures:
    counters: Figures = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = folder / "post.lua"
        script.write_text(POST)
        engine = stack.enter_context(fast_engine(folder))
        contenders = [engine, stack.enter_context(enginehouse(engine, folder))]
        if arguments.vllm_router:
            contenders.append(stack.enter_context(vllm_router(engine, arguments.vllm_router)))
        for _ in range(arguments.rounds):
            for contender in contenders:
                rate, _, spent = wrk(contender, 32, arguments.seconds, script)
                _, latency, _ = wrk(contender, 1, max(1, arguments.seconds // 2), script)
                for name, value in (("requests/s", rate), ("cpu µs/request", spent), ("latency µs", latency)):
                    counters[contender.name][name].append(value)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = stack.enter_context(small_engine())
        contenders = [engine, stack.enter_context(enginehouse(engine, folder))]
        if arguments.vllm_router:
            contenders.append(stack.enter_context(vllm_router(engine, arguments.vllm_router)))
        os.sched_setaffinity(0, {ENGINE_CORE})
        for contender in contenders:
            rate, spent = asyncio.run(streams(contender))
            counters[contender.name]["chunks/s"].append(rate)
            counters[contender.name]["cpu µs/chunk"].append(spent)
    return counters


def show(counters: Figures) -> None:
    columns = ["requests/s", "cpu µs/request", "latency µs", "chunks/s", "cpu µs/chunk"]
    medians = {name: {column: statistics.median(own[column]) for column in columns} for name, own in counters.items()}
    table = Table("", *columns)
    for name, own in medians.items():
        table.add_row(name, *(f"{own[column]:,.1f}" for column in columns))
    base = medians["enginehouse"]
    for name, own in medians.items():
        if name != "enginehouse":
            table.add_row(f"enginehouse / {name}", *(f"{base[column] / own[column]:.2f}x" for column in columns))
    Console().print(table)
    added = base["latency µs"] - medians["direct"]["latency µs"]
    Console().print(f"added latency over one connection: {added:.0f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--vllm-router", default=shutil.which("vllm-router"), help="its program, if not on the PATH")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("benchmarks/relay.py needs wrk: apt-get install wrk")
    show(measure(arguments))


if __name__ == "__main__":
    main()
