"""A swap of two engines: through the gateway and by hand, in alternating rounds, by the engines' own clock.

``python benchmarks/swaps.py [--ready-after 0 0.1 1.5] [--rounds N] [--quiet] [--llama-server]``. Both swap the same two
engines. By hand is a program that sends SIGTERM, waits for the exit, launches the other engine, asks for its health
every 10 ms and sends the request. All times are from when a client wants the other model's answer to its first bytes.
``late``: from when the engine is ready to the first token. ``cpu``: the processor time that the gateway took for one
swap. ``--quiet``: the engines print nothing when they are ready. ``--llama-server`` swaps real ones (``make engines``).
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from contenders import free_port
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from enginehouse_kit.gateway import RunningGateway
from tests.support.real_engines import find_llama_server

POLL_S = 0.01
SETTLED_S = 0.4
"""The pause before each swap, in which the gateway finishes what it does beside an earlier one."""
MODELS = "ab"
Command = Callable[[str, str], Sequence[str]]
"""The launch line of a model on a port."""


class Swap(NamedTuple):
    """One measured swap. ``late`` is ``None`` for an engine that does not tell when it was ready."""

    total: float
    late: float | None
    cpu: float = 0.0
    parts: tuple[float, ...] = ()


class Events:
    """The file to which the engines write what happened, and when."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "events"
        self.clear()

    def clear(self) -> None:
        self.path.write_text("")

    def swap(self, began: float, ended: float, cpu: float = 0.0) -> Swap:
        lines = [line.split() for line in self.path.read_text().splitlines()]
        at = {event: int(when) / 1e9 for event, when in lines}
        if not at.keys() >= {"stop", "ready"}:  # a real engine, or the first load
            return Swap(ended - began, None, cpu)
        parts = (at["stop"] - began, at["begin"] - at["stop"], at["ready"] - at["begin"], at["request"] - at["ready"])
        return Swap(ended - began, ended - at["ready"], cpu, parts)


def first_token(port: int, model: str) -> float:
    """Ask for an answer. Return when its first bytes came."""
    request = {"model": model, "stream": True, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    body = json.dumps(request).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + b"content-type: application/json\r\nconnection: close\r\n\r\n" + body)
        said = connection.recv(65536)
        at = time.monotonic()
        if not said.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"a request was answered {said!r}")
        while connection.recv(65536):
            pass
    return at


def is_healthy(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            return connection.recv(65536).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


class ByHand:
    """Swaps engines as a careful operator's program would."""

    def __init__(self, command: Command, events: Events) -> None:
        self._command = command
        self._events = events
        self._engine: subprocess.Popen[bytes] | None = None

    def swap(self, model: str) -> Swap:
        self._events.clear()
        began = time.monotonic()
        self.stop()
        port = free_port()
        self._engine = subprocess.Popen(self._command(model, str(port)), stderr=subprocess.DEVNULL)
        while not is_healthy(port):
            time.sleep(POLL_S)
        return self._events.swap(began, first_token(port, model))

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.send_signal(signal.SIGTERM)
            self._engine.wait()


class Ours:
    """Swaps engines by asking the gateway for the other model."""

    def __init__(self, gateway: RunningGateway, events: Events) -> None:
        self._port = int(gateway.url.rpartition(":")[2])
        self._pid = gateway.pid
        self._events = events

    def swap(self, model: str) -> Swap:
        self._events.clear()
        before, began = self._processor_time(), time.monotonic()
        ended = first_token(self._port, model)
        time.sleep(SETTLED_S / 2)  # what it does after the answer counts too
        return self._events.swap(began, ended, self._processor_time() - before)

    def _processor_time(self) -> float:
        tasks = Path(f"/proc/{self._pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def configuration(command: Command) -> str:
    tables = [
        f'[models.{model}]\ndriver = "openai"\nhealth_path = "/health"\ncommand = {json.dumps(" ".join(line))}\n'
        for model in MODELS
        for line in [command(model, "${port}")]
    ]
    return "\n".join(tables)


def measure(command: Command, events: Events, rounds: int) -> tuple[list[Swap], list[Swap]]:
    """The swaps of both, in alternating rounds."""
    by_hand, ours = ByHand(command, events), []
    swaps = []
    with RunningGateway(configuration(command)) as gateway:
        through = Ours(gateway, events)
        for number in range(-2, rounds):  # the first two load from nothing
            model = MODELS[number % 2]
            time.sleep(SETTLED_S)
            swaps.append(by_hand.swap(model))
            time.sleep(SETTLED_S)
            ours.append(through.swap(model))
    by_hand.stop()
    return swaps[2:], ours[2:]


def spread(values: Sequence[float]) -> str:
    """The median and the quartiles, in milliseconds."""
    ms = sorted(value * 1000 for value in values)
    low, _, high = statistics.quantiles(ms, n=4, method="inclusive")
    return f"{statistics.median(ms):.1f} [{low:.1f}-{high:.1f}]"


def add_row(table: Table, case: str, who: str, swaps: Sequence[Swap]) -> None:
    late = [swap.late for swap in swaps if swap.late is not None]
    parts = [f"{statistics.median(part) * 1000:.1f}" for part in zip(*(swap.parts for swap in swaps), strict=True)]
    cpu = spread([swap.cpu for swap in swaps]) if any(swap.cpu for swap in swaps) else ""
    table.add_row(case, who, spread([s.total for s in swaps]), spread(late) if late else "", *(parts or [""] * 4), cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ready-after", type=float, nargs="*", default=[0, 0.1, 0.4, 1.5, 3, 8], metavar="SECONDS")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--llama-server", action="store_true")
    arguments = parser.parse_args()
    table = Table(
        "ready after", "", "total [ms]", "late", "asked-stop", "stop-begin", "begin-ready", "ready-sent", "cpu"
    )
    with tempfile.TemporaryDirectory() as folder:
        events = Events(Path(folder))
        cases: list[tuple[str, Command]] = []
        for seconds in arguments.ready_after:
            line = [sys.executable, "-I", "-S", str(Path(__file__).with_name("swap_engine.py"))]
            last = [str(seconds), str(events.path), *(["quiet"] if arguments.quiet else [])]
            cases.append((f"{seconds:g} s", lambda _, port, line=line, last=last: [*line, port, *last]))  # type: ignore[misc]
        if arguments.llama_server:
            engine = find_llama_server()
            if engine is None:
                raise SystemExit("no llama-server is installed: run `make engines`")
            words = [str(engine.program), "-m", str(engine.model), "-c", "4096", "-t", "1", "--no-warmup", "--port"]
            cases.append(("llama-server", lambda model, port: [*words, port, "--alias", model]))
        for case, command in cases:
            by_hand, ours = measure(command, events, arguments.rounds)
            add_row(table, case, "by hand", by_hand)
            add_row(table, case, "gateway", ours)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
