"""Measures the relay, the direct path, and other gateways where they are installed, in one run on pinned cores.

``python benchmarks/relay.py [--rounds N] [--seconds S] [--folders FOLDERS] [--compiled PYTHON]`` prints for each
contender: the requests per second over 32 connections, once with equal heads and once with a ``traceparent`` in each,
the latency over one connection, and the processor time of each chunk of 100 streams. Each round asks the contenders in
turn, and pauses all others meanwhile, so each has the core alone. Ratios compare figures within a round; the tables
show their medians and spreads. Ten rounds of seven contenders take about ten minutes. Needs ``wrk`` and Linux with two
cores; a quiet machine helps.

``--seconds 0 --chunks 300`` measures streams only, of 6 s each: in 2 s a router works for no more than 0.2 s on 100 of
them.

``--compiled``: the interpreter of an environment with a compiled Enginehouse, which is measured too:
``python -m venv V && ENGINEHOUSE_COMPILE=1 V/bin/pip install .``

``enginehouse bench`` measures the same without ``wrk`` and nginx; here the clients are never the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

import msgspec
from contenders import CHUNKS, CORES, PEERS, VARIANTS, Measured, Own, contenders, fast_engine, streaming_engine
from rich.console import Console
from rich.table import Table

from enginehouse.domain.errors import GatewayError
from enginehouse_bench.clients import Question, read_streams
from enginehouse_bench.contenders import pinned, taking_turns, turn
from enginehouse_bench.rounds import (
    Comparison,
    ContenderFigures,
    Workload,
    WorkloadReport,
    middle_and_tail,
    report,
    warm_up,
)

_BODY = b'{"model":"bench","messages":[{"role":"user","content":"Hello, world"}],"max_tokens":16}'
_SCRIPT = """
local headers = {{["content-type"] = "application/json", {headers}}}
local body, unique, number = '{body}', {unique}, 0
request = function()
  number = number + 1
  if unique then headers["traceparent"] = string.format("00-%032x-%016x-00", number + 4294967296, number) end
  return wrk.format("POST", "/v1/chat/completions", headers, body)
end
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("requests %d errors %d p50 %d p99 %d took %d\\n", summary.requests,
    errors.status + errors.connect + errors.read, latency:percentile(50), latency:percentile(99), summary.duration))
end
"""
_PRINTED = re.compile(r"requests (\d+) errors (\d+) p50 (\d+) p99 (\d+) took (\d+)")
Measure = Callable[[Measured], ContenderFigures]


def wrk(connections: int, unique: bool, seconds: int, folder: Path) -> Measure:
    """Send requests over ``connections`` for ``seconds``. ``unique``: each has a ``traceparent`` of its own."""

    def measure(measured: Measured) -> ContenderFigures:
        contender, headers = measured
        script = folder / "ask.lua"
        lines = ", ".join(f'["{name}"] = "{value}"' for name, value in headers.items())
        script.write_text(_SCRIPT.format(headers=lines, body=_BODY.decode(), unique=str(unique).lower()))
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), contender.url]
        before = contender.cpu_time()
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = contender.cpu_time()
        found = _PRINTED.search(printed)
        if found is None or int(found[2]) or not int(found[1]):
            raise GatewayError(printed)
        requests, _, p50, p99, took = (int(part) for part in found.groups())
        return ContenderFigures.of(requests, took / 1e6, (p50 / 1e6, p99 / 1e6), before, after)

    return measure


def streams(count: int) -> Measure:
    """Read ``count`` streams at once."""

    def measure(measured: Measured) -> ContenderFigures:
        contender, headers = measured
        before = contender.cpu_time()
        seen = asyncio.run(read_streams(contender.url, Question("bench", headers=headers), count))
        after = contender.cpu_time()
        return ContenderFigures.of(seen.chunks, seen.took, middle_and_tail(seen.waits), before, after)

    return measure


Seen = dict[Workload, dict[str, list[ContenderFigures]]]
"""The figures of each round, by contender."""


def in_rounds(contenders: Sequence[Measured], measures: dict[Workload, Measure], rounds: int) -> Seen:
    """Measure every contender in every way, round by round. A contender that fails once is left out.

    Each round begins with another contender.
    """
    able = list(contenders)
    seen: Seen = {workload: {each.contender.name: [] for each in able} for workload in measures}
    with taking_turns([each.contender for each in contenders]):
        for number in range(rounds):
            began = perf_counter()
            able = [each for each in able if is_measured(each, measures, seen)]
            able = able[1:] + able[:1]  # a place early or late in the round is worth up to a tenth
            print(f"round {number + 1} of {rounds} took {perf_counter() - began:.0f} s", file=sys.stderr)
    return seen


def is_measured(measured: Measured, measures: dict[Workload, Measure], seen: Seen) -> bool:
    """Measure a contender in every way. Return ``False``, and drop its figures, if that fails."""
    contender, headers = measured
    try:
        with turn(contender):
            warm_up(contender, Question("bench", headers=headers))
            for workload, measure in measures.items():
                seen[workload][contender.name].append(measure(measured))
    except GatewayError as error:
        print(f"{contender.name} is left out: {error}")
        for figures in seen.values():
            del figures[contender.name]
        return False
    return True


class Against(msgspec.Struct):
    """One of our gateways compared with every other contender."""

    name: str
    reports: list[WorkloadReport]


def compared(seen: Seen, own: Sequence[str]) -> list[Against]:
    """Each of ``own`` compared with all others under all workloads."""
    found = []
    for name in own:
        able = [(workload, figures) for workload, figures in seen.items() if name in figures]
        ordered = ((workload, {name: figures[name], **figures}) for workload, figures in able)
        found.append(Against(name, [report(workload, figures) for workload, figures in ordered]))
    return found


def show(comparisons: Sequence[Against]) -> None:
    """Print a table of figures for each workload, and below it the ratios within a round."""
    console = Console(width=150)
    for number, first in enumerate(comparisons[0].reports):
        console.print(figures_table(first))
        others = list(first.against)
        table = Table("rate (least to most), processor time", *others)
        for each in comparisons:
            against = each.reports[number].against
            table.add_row(each.name, *(ratios(against[other]) if other in against else "" for other in others))
        console.print(table)


def figures_table(report: WorkloadReport) -> Table:
    table = Table("", "per s", "p50 µs", "p99 µs", "user µs", "kernel µs", title=f"{report.size} {report.kind}")
    for name, own in report.figures.items():
        cpu = [] if own.cpu_us is None else [f"{own.cpu_us - (own.system_us or 0):.1f}", f"{own.system_us:.1f}"]
        table.add_row(name, f"{own.per_s:,.0f}", f"{own.p50_us:,.0f}", f"{own.p99_us:,.0f}", *cpu)
    return table


def ratios(comparison: Comparison) -> str:
    rate, cpu = comparison.per_s, comparison.cpu_us
    text = f"{rate.median:.2f}x ({rate.least:.2f} to {rate.most:.2f})"
    return text if cpu is None else f"{text}, cpu {cpu.median:.2f}x"


_LOOP = """
import platform, timeit
class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second
    def both(self):
        return self.first + self.second
def loop():
    for number in range(100_000):
        Pair(number, b"%d" % number).both
        Pair(number, number).both()
fixed = min(timeit.repeat(loop, number=1, repeat=9)) * 1e3
print(f"Python {platform.python_version()}, {fixed:.0f} ms for a fixed loop")
"""


def interpreter(python: str) -> str:
    """The interpreter's version, its speed, and its Enginehouse.

    The speed is the time of a fixed loop, because not every distribution says whether its Python was built with PGO.
    """
    commands = ([python, "-c", _LOOP], [python, "-m", "enginehouse", "--version"])
    return ", ".join(
        subprocess.run(each, check=True, capture_output=True, text=True).stdout.strip() for each in commands
    )


def measure_all(own: Sequence[Own], arguments: argparse.Namespace, folder: Path) -> Iterator[Seen]:
    """Yield the figures of requests, then those of streams."""
    seconds = arguments.seconds
    asked: dict[Workload, Measure] = {
        Workload("clients that repeat their heads", 32): wrk(32, False, seconds, folder),
        Workload("clients whose heads are unique", 32): wrk(32, True, seconds, folder),
        Workload("client", 1): wrk(1, False, max(1, seconds // 2), folder),
    }
    if not seconds:
        asked.clear()
    streamed: dict[Workload, Measure] = {Workload("streams", count): streams(count) for count in arguments.streams}
    for engine, measures in ((fast_engine(folder), asked), (streaming_engine(arguments.chunks), streamed)):
        if not measures:
            continue
        with engine as url, contenders(url, own, arguments.peers, arguments.folders) as found, pinned(CORES.clients):
            yield in_rounds(found, measures, arguments.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=2, help="of requests in each round; 0 leaves them out")
    parser.add_argument("--streams", type=int, nargs="*", default=[100], help="how many at once")
    parser.add_argument("--chunks", type=int, default=CHUNKS, help="of each stream, 50 per second")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=["vllm-router", "sglang-router"])
    parser.add_argument("--folders", default=os.environ["PATH"], help="where the peers' programs are, as in $PATH")
    parser.add_argument("--compiled", metavar="PYTHON", help="an interpreter with a compiled Enginehouse")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("benchmarks/relay.py needs wrk: apt-get install wrk")
    own = [Own("enginehouse", sys.executable, variants=arguments.compiled is None)]
    if arguments.compiled:
        own.insert(0, Own("compiled", arguments.compiled, variants=True))
    for each in own:
        print(f"{each.name}: {interpreter(each.python)}")
    names = [each.name + suffix for each in own for suffix in VARIANTS if each.variants or not suffix]
    found = []
    with tempfile.TemporaryDirectory() as path:
        for seen in measure_all(own, arguments, Path(path)):
            found.append(compared(seen, names))
            show(found[-1])
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
