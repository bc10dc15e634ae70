from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from enginehouse.interfaces.exporters import TracedRequest
from enginehouse.services import MetricInfo
from enginehouse_kit.testing import FakeFigures, request_record
from enginehouse_otlp.exporter_process import ExporterProcess, epoch_ns
from enginehouse_otlp.figures import METRICS, RESTARTS, SPANS, TRACES_DROPPED, begin
from enginehouse_otlp.messages import ExportSettings, MetricBatch, MetricRecord, Point
from tests.support.waiting import until

SETTINGS = ExportSettings("otlp", "", "", {}, "", "0", 0.1)
BATCH = 256
READ = "import sys; read = sys.stdin.buffer.read; size = lambda: int.from_bytes(read(4), 'big'); "
REPORT = 'print(\'{"records": 256, "spans": 512, "failed": 0}\', flush=True)'


class CountedProcess(ExporterProcess):
    """An exporter with what it has counted."""

    def __init__(self, settings: ExportSettings, **more: Any) -> None:
        self.figures = FakeFigures(METRICS)
        begin(self.figures)
        super().__init__(settings, self.figures, **more)

    @property
    def spans(self) -> int:
        """Those that the collector took."""
        return self._numbers(SPANS)["sent",]

    @property
    def dropped(self) -> dict[str, int]:
        return {why: number for (why,), number in self._numbers(TRACES_DROPPED).items()}

    @property
    def restarts(self) -> int:
        return self._numbers(RESTARTS)[()]

    def _numbers(self, metric: MetricInfo) -> dict[tuple[str, ...], int]:
        return {labels: number for labels, number, _ in self.figures.measured(metric)}


def traced(question: bytes = b"") -> TracedRequest:
    return TracedRequest(b"0" * 31 + b"1", 1, b"", (b"", b""), b"", request_record(None), question=question)


@asynccontextmanager
async def exporter(
    script: str, *, most_bytes: int = 1 << 20, flush_timeout: float = 30
) -> AsyncIterator[CountedProcess]:
    async def pause(seconds: float) -> None:
        await asyncio.sleep(0)

    settings = msgspec.structs.replace(SETTINGS, flush_timeout=flush_timeout)
    process = CountedProcess(settings, most_bytes=most_bytes, command=(sys.executable, "-c", script), pause=pause)
    process.start()
    await until(lambda: process._process is not None)
    try:
        yield process
    finally:
        await process.close()


def add_batches(process: ExporterProcess, count: int) -> None:
    for _ in range(count * BATCH):
        process.add(traced())


def test_the_clocks_are_compared_where_nothing_came_between_them() -> None:
    counter = iter([100, 900, 1000, 1002, 2000, 2500])
    time_of_day = iter([50_900, 51_001, 52_000])
    assert epoch_ns(lambda: next(time_of_day), lambda: next(counter)) == 50_000


async def test_what_the_exporter_reports_is_counted() -> None:
    async with exporter(READ + "read(size()); read(size()); " + REPORT + "; read()") as process:
        add_batches(process, 1)
        await until(lambda: process.spans)
        assert (process.spans, process.dropped) == (512, {"full": 0, "died": 0})


async def test_what_does_not_fit_is_dropped_and_counted_and_memory_is_bounded() -> None:
    async with exporter("import time; time.sleep(600)", most_bytes=200_000, flush_timeout=0) as process:
        add_batches(process, 50)
        assert process.dropped["full"] > 0
        stdin = process._process.stdin if process._process is not None else None
        assert stdin is not None
        assert stdin.transport.get_write_buffer_size() <= 200_000
        assert process._requests == []


async def test_while_half_of_the_room_is_taken_no_new_request_is_traced(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    waits = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
    reads = "[read(size()) for _ in range(6)]; "
    async with exporter(waits + READ + reads + REPORT + "; read()", most_bytes=4_000_000) as process:
        for _ in range(4):
            assert process.admits()
            process.add(traced(b"x" * 600_000))
        assert [process.admits(), process.admits()] == [False, False]
        assert process.dropped == {"full": 2, "died": 0}
        process.add(traced(b"x" * 1000))  # of a slow request, or of one that was already live; there is room for it
        go_on.touch()
        await until(process.admits)
        await until(lambda: process.spans)
        assert process._requests == []


async def test_records_with_long_contents_are_sent_sooner_so_that_they_fit() -> None:
    reads = "[read(size()) for _ in range(3)]; "
    async with exporter(READ + reads + REPORT + "; read()", most_bytes=1_500_000) as process:
        for _ in range(2):
            process.add(traced(b"x" * 250_000))
            process.add(traced(b"x" * 300_000))
        await until(lambda: process.spans)
        assert process.dropped == {"full": 0, "died": 0}


async def test_a_record_that_cannot_be_written_is_counted() -> None:
    async with exporter(READ + "read(size()); read(size()); " + REPORT + "; read()") as process:
        unspeakable = msgspec.structs.replace(traced(b"x" * 600_000), root=1 << 70)
        process.add(unspeakable)  # sent at once, because of its length
        assert process.dropped == {"full": 1, "died": 0}
        assert process.admits()
        add_batches(process, 1)
        await until(lambda: process.spans)


async def test_an_exporter_that_dies_is_started_again_and_the_loss_is_counted() -> None:
    async with exporter(READ + "read(size()); read(size()); sys.exit(1)") as process:
        first = process._process
        add_batches(process, 1)
        await until(lambda: process.restarts and process._process not in (None, first))
        assert process.dropped["died"] == BATCH


async def test_an_exporter_that_cannot_be_started_costs_nothing_but_its_records() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    process = CountedProcess(SETTINGS, command=("/nowhere/to/be/found",), pause=pause)
    process.start()
    await until(lambda: len(pauses) > 9)
    add_batches(process, 1)
    await process.close()
    assert process.dropped["died"] == BATCH
    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert max(pauses) == 30


async def test_records_that_wait_are_sent_at_the_end() -> None:
    """The exporter prints a report only if the pipe brings a second message."""

    async with exporter(READ + "read(size()); read(size()) and " + REPORT) as process:
        process.add(traced())
    assert process.spans == 512


async def test_a_batch_that_is_too_large_is_the_only_one_that_is_dropped() -> None:
    async with exporter(READ + "read(size()); read(size()); " + REPORT + "; read()", most_bytes=500_000) as process:
        process.add(traced(b"x" * 600_000))
        assert process.dropped == {"full": 1, "died": 0}
        add_batches(process, 1)
        await until(lambda: process.spans)
        assert process.dropped == {"full": 1, "died": 0}


async def test_metrics_arrive_however_many_they_are() -> None:
    async with exporter(READ + "read(size()); read(size()); " + REPORT + "; read()", most_bytes=100_000) as process:
        points = [Point({"model": f"model-{number}"}, 1.0) for number in range(10_000)]
        process.send_metrics(MetricBatch(2, 1, [MetricRecord("m", "gauge", "", "", points)]))
        await until(lambda: process.spans)
