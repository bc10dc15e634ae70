"""Measures whether the gateway's memory grows with requests, a third of them refused, with streams, and with reloads.

``python benchmarks/soak.py [--requests 200000] [--streams 10000] [--reloads 2000] [--failed-probes 10000]
[--failed-moves 10000] [--failed-reloads 2000] [--traced [away]]`` runs a gateway process before an engine that costs
almost nothing; in the last three parts, engines and configurations fail. Each part first runs a tenth of its work
unmeasured, because tables, rings and the allocator fill up. Then the program reads the resident memory after each of 40
parts of the work. Requests leave no cycles, so nothing waits for the garbage collector, which runs seldom
(``tests/gateway/relay/test_cycles.py``). Slopes are least-squares fits of each half: memory that levels off has a
smaller slope in the second half, a leak the same in both.

``--traced`` traces every request, and shows the memory of the exporter as well. With ``--traced away``, no collector
listens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx
import psutil
from contenders import free_port
from failing_engine import FailingEngine
from rich.console import Console
from rich.table import Table

from enginehouse_kit.gateway import RunningGateway

CONNECTIONS, AT_ONCE = 32, 200
SAMPLES = 40
TOKENS, PACE_S = 20, 0.002
CONFIG = """
[timeouts]
connect = "1m"  # the machine may be busy
[routing]
max_retries = {retries}
[backends.engine]
url = "http://127.0.0.1:{port}"
driver = "openai"
models = ["bench"]
priority = {priority}
"""
TRACED = """
[telemetry]
traces = "otlp"
endpoint = "http://127.0.0.1:COLLECTOR"
sample_ratio = 1.0
"""
"""The engine is the collector too: it answers whatever is posted."""
FAILING = """
[checks]
interval = "20ms"
[backends.source]
url = "http://127.0.0.1:{port}/source"
driver = "vllm"
models = ["moving"]
[backends.broken]
url = "http://127.0.0.1:{port}/broken"
driver = "vllm"
models = ["moving"]
""" + "".join(
    f"""
[backends.unwell-{number}]
url = "http://127.0.0.1:{{port}}/unwell"
driver = "vllm"
models = ["unwell"]
"""
    for number in range(10)
)
AWAY = "9"
"""A port that nothing listens on."""
TRACE_COUNTERS = ("enginehouse_spans_total", "enginehouse_traces_dropped_total", "enginehouse_exporter_restarts_total")
Work = Callable[[int], Awaitable[None]]


def post(body: bytes, *lines: str) -> bytes:
    head = ["POST /v1/chat/completions HTTP/1.1", "host: localhost", f"content-length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


def chat(model: str, text: str = "Hello", **more: object) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}], **more}).encode()


SERVED = post(chat("bench"))
STREAM = post(chat("bench", stream=True).replace(b'"stream": true', b'"stream":true'), "connection: close")


def refused(number: int) -> bytes:
    """A request that the gateway refuses, in turn: an unknown model, a body that is no JSON, no model."""
    long = "x" * 16_000
    bodies = (chat(f"unknown-{number}", long), chat("bench", long)[:-2], chat("", long))
    return post(bodies[number % len(bodies)])


class Soak:
    """The clients of one gateway, which has ``config``."""

    def __init__(self, gateway: RunningGateway, config: str, engine_port: int) -> None:
        self._gateway = gateway
        self._port = int(gateway.url.rpartition(":")[2])
        self._config = config
        self._engine_port = engine_port
        self._number = 0
        self._failing: FailingEngine | None = None
        self._stream_of_moves: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._http = httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=60)

    def close(self) -> None:
        """Leave the stream that never ends, for which the gateway would wait."""
        if self._stream_of_moves is not None:
            self._stream_of_moves[1].close()

    async def requests(self, count: int) -> None:
        """Send ``count`` requests over a few connections."""
        await asyncio.gather(*(self._connection(count // CONNECTIONS) for _ in range(CONNECTIONS)))

    async def _connection(self, count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for _ in range(count):
            self._number += 1
            expected = 200 if self._number % 3 else 0
            writer.write(SERVED if expected else refused(self._number // 3))
            head = await reader.readuntil(b"\r\n\r\n")
            status, length = int(head.split(b" ", 2)[1]), int(head.lower().partition(b"content-length: ")[2].split()[0])
            await reader.readexactly(length)
            if status != expected and status not in (400, 404):
                raise SystemExit(f"a request was answered {status}")
        writer.close()

    async def streams(self, count: int) -> None:
        """Read ``count`` streams, many at once."""
        for _ in range(max(1, count // AT_ONCE)):
            await asyncio.gather(*(self._stream() for _ in range(min(count, AT_ONCE))))

    async def _stream(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(STREAM)
        if b"data: [DONE]" not in await reader.read():
            raise SystemExit("a stream was broken off")
        writer.close()

    async def _failing_engine(self) -> FailingEngine:
        """The engine that fails, behind the gateway, with a stream that never ends."""
        if self._failing is None:
            self._failing = failing = FailingEngine()
            await failing.start()
            self._gateway.write_config(
                self._config.format(port=self._engine_port, retries=2, priority=1) + FAILING.format(port=failing.port)
            )
            (await self._http.post("/api/reload")).raise_for_status()
            await failing.until_probed(20)
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(post(chat("moving", stream=True), "x-request-id: moving"))
            await reader.readuntil(b"data: ")
            self._stream_of_moves = reader, writer  # or it would be closed
        return self._failing

    async def failed_probes(self, count: int) -> None:
        """Have engines break off the answers to ``count`` probes."""
        failing = await self._failing_engine()
        await failing.until_probed(failing.probed + count)

    async def failed_moves(self, count: int) -> None:
        """Try to move a stream ``count`` times to an engine that breaks its answers off."""
        await self._failing_engine()
        for _ in range(count):
            answer = await self._http.post("/api/requests/moving/move", json={"to": "broken"})
            if answer.status_code not in (409, 502):
                raise SystemExit(f"a move was answered {answer.text}")

    async def failed_reloads(self, count: int) -> None:
        """Reload an unusable configuration ``count`` times."""
        self._gateway.write_config('[server]\nport = "none"\n')
        for _ in range(count):
            answer = await self._http.post("/api/reload")
            if answer.status_code != 400:
                raise SystemExit(f"a reload was answered {answer.text}")

    async def reloads(self, count: int) -> None:
        """Change the configuration ``count`` times, with a request after each change."""
        for _ in range(count):
            self._number += 1
            self._gateway.write_config(
                self._config.format(port=self._engine_port, retries=self._number % 3, priority=self._number % 50)
            )
            answer = await self._http.post("/api/reload")
            if answer.status_code != 200:
                raise SystemExit(f"a reload was answered {answer.text}")
            served = await self._http.post("/v1/chat/completions", content=chat("bench"))
            if served.status_code != 200:
                raise SystemExit(f"a request after a reload was answered {served.text}")


async def measure(
    work: Work, count: int, processes: Sequence[psutil.Process]
) -> tuple[Sequence[Sequence[float]], float]:
    """Do ``count`` units of ``work``, after a tenth unmeasured. Return the memory of each process, and the seconds.

    The memory is the resident one in KiB, before the measured work and after each of its ``SAMPLES`` parts.
    """
    await work(count // 10)
    began = time.perf_counter()
    memory = [[process.memory_info().rss / 1024] for process in processes]
    for _ in range(SAMPLES):
        await work(count // SAMPLES)
        for seen, process in zip(memory, processes, strict=True):
            seen.append(process.memory_info().rss / 1024)
    return memory, time.perf_counter() - began


async def soak(clients: Soak, processes: dict[str, psutil.Process], counts: dict[str, int]) -> Table:
    slope = "slope of 1st half [KiB per 1000]"
    table = Table("part", "count", "process", "RSS first [MiB]", "last", "most", slope, "of 2nd", "seconds")
    for part, count in counts.items():
        memory, seconds = await measure(getattr(clients, part), count, [*processes.values()])
        for name, seen in zip(processes, memory, strict=True):
            done = [count / SAMPLES * number / 1000 for number in range(len(seen))]
            middle = len(done) // 2
            halves = ((done[:middle], seen[:middle]), (done[middle:], seen[middle:]))
            slopes = [f"{statistics.linear_regression(*half).slope:+.2f}" for half in halves]
            sizes = [f"{kib / 1024:.1f}" for kib in (seen[0], seen[-1], max(seen))]
            table.add_row(part, str(count), name, *sizes, *slopes, f"{seconds:.0f}")
    clients.close()
    return table


def processes(gateway: RunningGateway) -> dict[str, psutil.Process]:
    """The gateway's process, and that of its exporter, if it has one."""
    own = psutil.Process(gateway.pid)
    return {"gateway": own, **dict(zip(["exporter"], own.children(), strict=False))}


def metrics(gateway: RunningGateway) -> list[str]:
    return httpx.get(f"{gateway.url}/metrics", trust_env=False).text.splitlines(keepends=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--reloads", type=int, default=2_000)
    parser.add_argument("--failed-probes", type=int, default=10_000)
    parser.add_argument("--failed-moves", type=int, default=10_000)
    parser.add_argument("--failed-reloads", type=int, default=2_000)
    parser.add_argument("--traced", nargs="?", const="here", choices=("here", "away"), help="trace every request")
    counts = vars(parser.parse_args())
    collector = {"here": "{port}", "away": AWAY}.get(counts.pop("traced"))
    config = CONFIG + TRACED.replace("COLLECTOR", collector) if collector else CONFIG
    port = free_port()
    program = [sys.executable, "-m", "enginehouse_bench.engine", str(port), str(TOKENS), str(PACE_S)]
    engine = subprocess.Popen(program, stdout=subprocess.DEVNULL)
    try:
        with RunningGateway(config.format(port=port, retries=2, priority=1)) as gateway:
            gateway.until_health(engine="healthy")
            clients = Soak(gateway, config, port)
            Console(width=150).print(asyncio.run(soak(clients, processes(gateway), counts)))
            print("".join(line for line in metrics(gateway) if line.startswith(TRACE_COUNTERS)), end="")
    finally:
        engine.kill()
        engine.wait()


if __name__ == "__main__":
    main()
