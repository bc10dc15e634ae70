"""What an exporter that dies and a collector that does not answer cost: traces, and no request."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from enginehouse_otlp.exporter_process import COMMAND
from enginehouse_otlp.framing import frame
from enginehouse_otlp.messages import ExportSettings, RequestBatch
from tests.support import plain_httpx
from tests.support.held_port import held_port
from tests.support.otlp_collector import CollectedSpan, HttpCollector
from tests.support.traced_gateway import ask, backend, settings

CLIENTS = 8
MIB = 1024 * 1024
LONG = "x" * 200_000
"""Records with such bodies soon fill the pipe to the exporter."""


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("m") as engine:
        yield engine


@pytest.fixture
def silent_collector() -> Iterator[str]:
    """The address of a collector that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.timeout(300)
def test_an_exporter_killed_under_load_costs_only_records_that_are_counted(engine: SimEngine) -> None:
    with (
        HttpCollector() as collector,
        RunningGateway(settings(collector.url) + backend("a", engine, "m")) as gateway,
    ):
        gateway.until_health(a="healthy")
        first = exporter(gateway)
        with load(gateway) as statuses:
            first.suspend()  # so that records wait in its pipe when it is killed
            gateway.until(lambda _: statuses.total() > 100)
            first.kill()
            killed_at, killed, asked = time.time_ns(), time.monotonic(), statuses.total()
            gateway.until(lambda _: statuses.total() > asked + 100)

        def back(spans: list[CollectedSpan]) -> bool:
            statuses[ask(gateway, "m").status_code] += 1  # one alone may come before the next exporter runs
            return any(span.began > killed_at for span in spans)

        collector.until(back)
        took, new = time.monotonic() - killed, exporter(gateway)
        assert set(statuses) == {200}
        assert new.nice() == min(psutil.Process(gateway.pid).nice() + 13, 19)
        spent = new.cpu_times().user + new.cpu_times().system
        lost = figure(gateway, 'traces_dropped_total{why="died"}')
        assert lost > 50
        assert figure(gateway, 'traces_dropped_total{why="full"}') == 0
        assert figure(gateway, "exporter_restarts_total") == 1
        collector.until(lambda spans: sum(span.kind == "server" for span in spans) + lost >= statuses.total())
    print(f"traces were back after {took:.2f} s; the new exporter took {spent:.2f} s of a processor")
    assert spent < 1.5  # on a quiet machine, a pause of 0.2 s and this are all that passes


def test_if_the_collector_hangs_the_memory_of_both_processes_is_bounded(
    engine: SimEngine, silent_collector: str
) -> None:
    config = settings(silent_collector, 'capture_content = true\nflush_timeout = "0s"') + backend("a", engine, "m")
    with RunningGateway(config) as gateway:
        gateway.until_health(a="healthy")
        processes = psutil.Process(gateway.pid), exporter(gateway)
        with load(gateway, LONG) as statuses:
            gateway.until(lambda _: figure(gateway, 'traces_dropped_total{why="full"}') > 200)
            before, asked = [each.memory_info().rss for each in processes], statuses.total()
            gateway.until(lambda _: statuses.total() > asked + 200)
            grown = [(each.memory_info().rss - rss) / MIB for each, rss in zip(processes, before, strict=True)]
        assert set(statuses) == {200}
        assert exporter(gateway).pid == processes[1].pid
    print(f"grown by {grown[0]:.1f} MiB (gateway) and {grown[1]:.1f} MiB (exporter)")
    assert max(grown) < 20  # of 40 MiB that were sent; some of it is the allocator's


@pytest.mark.timeout(300)
def test_a_collector_that_comes_late_gets_every_span_and_the_log_has_a_line_for_each_change(engine: SimEngine) -> None:
    with (
        held_port() as port,
        RunningGateway(settings(f"http://127.0.0.1:{port}") + backend("a", engine, "m")) as gateway,
    ):
        gateway.until_health(a="healthy")
        for number in range(20):
            ask(gateway, "m", trace=f"{number + 1:032x}")
        gateway.until(lambda _: "does not accept spans" in gateway.log, timeout=280)  # it is niced
        with HttpCollector(port) as collector:
            collector.until(lambda spans: len({span.trace_id for span in spans}) == 20)
            gateway.until(lambda _: "accepts spans again" in gateway.log)
        assert figure(gateway, 'spans_total{outcome="failed"}') == 0
        about = [line for line in gateway.log.splitlines() if "collector" in line]
        assert len(about) == 2, about


def test_a_stopping_gateway_waits_for_its_exporter_as_long_as_it_is_told(
    engine: SimEngine, silent_collector: str
) -> None:
    """The exporter itself would wait 10 s for the collector."""
    with RunningGateway(settings(silent_collector, 'flush_timeout = "500ms"') + backend("a", engine, "m")) as gateway:
        gateway.until_health(a="healthy")
        ask(gateway, "m")
        process, began = exporter(gateway), time.monotonic()
        gateway.stop()
        assert 0.5 <= time.monotonic() - began < 10
        assert not process.is_running()


def test_an_exporter_that_is_asked_to_stop_ends_in_time_although_its_input_goes_on() -> None:
    """A process manager may signal the exporter together with the gateway."""
    command = [sys.executable, "-m", "enginehouse_otlp.process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(frame(ExportSettings("console", "", "", {}, "", "0", 0.2)) + frame(RequestBatch(0, [])))
        process.stdin.flush()
        assert process.stdout.readline() == b'{"records":0,"spans":0,"failed":0}\n'
        process.terminate()
        assert process.wait(20) == 1


@contextmanager
def load(gateway: RunningGateway, padding: str = "") -> Iterator[Counter[int]]:
    """Clients that ask all the time. Yields the statuses of their answers."""
    statuses: Counter[int] = Counter()
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "padding": padding}
    ended = threading.Event()

    def client() -> None:
        with plain_httpx.Client(base_url=gateway.url) as http:
            while not ended.is_set():
                statuses[http.post("/v1/chat/completions", json=body).status_code] += 1

    with ThreadPoolExecutor(CLIENTS) as pool:
        asking = [pool.submit(client) for _ in range(CLIENTS)]
        try:
            yield statuses
        finally:
            ended.set()
        for each in asking:
            each.result()


def exporter(gateway: RunningGateway) -> psutil.Process:
    """The exporter of the gateway that runs now."""
    (process,) = [each for each in psutil.Process(gateway.pid).children() if set(COMMAND) <= {*each.cmdline()}]
    return process


def figure(gateway: RunningGateway, name: str) -> float:
    """The value of one of the gateway's metrics."""
    page = plain_httpx.get(f"{gateway.url}/metrics").text
    found = re.search(rf"^enginehouse_{re.escape(name)} (\S+)$", page, re.M)
    assert found is not None
    return float(found[1])
