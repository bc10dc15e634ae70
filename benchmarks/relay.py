"""The relay against the direct path and against other gateways, where they are installed; in one run, on pinned cores.

``python benchmarks/relay.py [--rounds N] [--seconds S] [--peers FOLDERS]`` prints for each contender: the requests per
second over 32 connections, once with equal heads and once with a ``traceparent`` in each, the latency over one
connection, and the processor time of each chunk of 100 streams. Each round asks all contenders in turn; ratios are of
figures within a round, with their median and spread. Needs ``wrk`` and Linux with two cores; a quiet machine helps.

``enginehouse bench`` measures the same without ``wrk`` and nginx; here the clients are never the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import quantiles

import msgspec
from contenders import CORES, Measured, contenders, fast_engine, streaming_engine
from rich.console import Console
from rich.table import Table

from enginehouse.bench.clients import Question, read_streams
from enginehouse.bench.contenders import clients_pinned
from enginehouse.bench.rounds import Comparison, Figures, Spread, Workload, WorkloadReport, report
from enginehouse.domain.errors import GatewayError

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
Measure = Callable[[Measured], Figures]


def wrk(connections: int, unique: bool, seconds: int, folder: Path) -> Measure:
    """Ask over so many connections for ``seconds``."""

    def measure(measured: Measured) -> Figures:
        contender, headers = measured
        script = folder / "ask.lua"
        lines = ", ".join(f'["{name}"] = "{value}"' for name, value in headers.items())
        script.write_text(_SCRIPT.format(headers=lines, body=_BODY.decode(), unique=str(unique).lower()))
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), contender.url]
        before = contender.cpu_seconds()
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = contender.cpu_seconds()
        found = _PRINTED.search(printed)
        if found is None or int(found[2]) or not int(found[1]):
            raise GatewayError(printed)
        requests, _, p50, p99, took = (int(part) for part in found.groups())
        cpu = None if before is None or after is None else (after - before) / requests * 1e6
        return Figures(requests / took * 1e6, p50, p99, cpu)

    return measure


def streams(count: int) -> Measure:
    """Read so many streams at once."""

    def measure(measured: Measured) -> Figures:
        contender, headers = measured
        before = contender.cpu_seconds()
        seen = asyncio.run(read_streams(contender.url, Question("bench", headers=headers), count))
        after = contender.cpu_seconds()
        cpu = None if before is None or after is None else (after - before) / seen.chunks * 1e6
        p50, p99 = quantiles(seen.waits * 2, n=100)[49:99:49]
        return Figures(seen.chunks / seen.took, p50 * 1e6, p99 * 1e6, cpu)

    return measure


def rounds(
    engine: AbstractContextManager[str], measures: dict[Workload, Measure], count: int, programs: str
) -> list[WorkloadReport]:
    """Carry out every measure with every contender, ``count`` times in turn. Those that fail once are left out."""
    with engine as url, contenders(url, programs) as all_of_them, clients_pinned(CORES):
        reports = []
        for workload, measure in measures.items():
            able = list(all_of_them)
            seen: defaultdict[str, list[Figures]] = defaultdict(list)
            for _ in range(count):
                able = [each for each in able if _is_measured(each, measure, seen[each.contender.name])]
            whole = {each.contender.name: seen[each.contender.name] for each in able}
            reports.append(report(workload, whole))
        return reports


def _is_measured(measured: Measured, measure: Measure, seen: list[Figures]) -> bool:
    try:
        seen.append(measure(measured))
    except GatewayError as error:
        print(f"{measured.contender.name}: {error}")
        return False
    return True


def show(reports: Sequence[WorkloadReport]) -> None:
    console = Console(width=150)
    for each in reports:
        table = Table(
            "", "per s", "p50 µs", "p99 µs", "cpu µs", "enginehouse against it", "cpu", "added p50 µs", "p99 µs"
        )
        table.title = f"{each.size} {each.kind}"
        for name, own in each.figures.items():
            cpu = "" if own.cpu_us is None else f"{own.cpu_us:.1f}"
            cells = (f"{own.per_s:,.0f}", f"{own.p50_us:,.0f}", f"{own.p99_us:,.0f}", cpu)
            table.add_row(name, *cells, *compared(each.against.get(name)))
        console.print(table)


def compared(comparison: Comparison | None) -> list[str]:
    def ratio(spread: Spread | None) -> str:
        return "" if spread is None else f"{spread.median:.2f}x ({spread.least:.2f} to {spread.most:.2f})"

    if comparison is None:
        return []
    added = (f"{spread.median:+,.0f}" for spread in (comparison.added_p50_us, comparison.added_p99_us))
    return [ratio(comparison.per_s), ratio(comparison.cpu_us), *added]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--peers", default=os.environ["PATH"], help="where their programs are; folders as in $PATH")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("benchmarks/relay.py needs wrk: apt-get install wrk")
    built = sysconfig.get_config_var("CONFIG_ARGS") or ""
    print(f"Python {platform.python_version()}, built {'with' if 'optimizations' in built else 'without'} PGO")
    with tempfile.TemporaryDirectory() as path:
        folder, seconds = Path(path), arguments.seconds
        asked: dict[Workload, Measure] = {
            Workload("clients that repeat their heads", 32): wrk(32, False, seconds, folder),
            Workload("clients whose heads are unique", 32): wrk(32, True, seconds, folder),
            Workload("client", 1): wrk(1, False, seconds, folder),
        }
        reports = rounds(fast_engine(folder), asked, arguments.rounds, arguments.peers)
    streamed = {Workload("streams", count): streams(count) for count in (100,)}
    reports += rounds(streaming_engine(), streamed, arguments.rounds, arguments.peers)
    show(reports)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(reports))


if __name__ == "__main__":
    main()
