"""The exporter process, as the gateway sees it: records go in through a pipe that nothing ever waits for."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from time import perf_counter, perf_counter_ns, time_ns

import msgspec

from enginehouse.records import Figures, TracedRequest
from enginehouse_otlp.figures import RESTARTS, SPANS, TRACES_DROPPED
from enginehouse_otlp.framing import frame
from enginehouse_otlp.messages import ExportSettings, Message, MetricBatch, Report, RequestBatch

_log = logging.getLogger(__name__)

_BATCH = 256
_BATCH_CONTENT = 512 * 1024
"""The most bytes of prompts and answers in a batch, so that it fits into the pipe."""
_BATCH_EVERY_S = 0.25
_MOST_WAITING_BYTES = 4 * 1024 * 1024
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0
_LIVED_WELL_S = 10.0
_read_report = msgspec.json.Decoder(Report).decode
COMMAND = (sys.executable, "-m", "enginehouse_otlp.process")


def epoch_ns(
    time_of_day: Callable[[], int] = time_ns, counter: Callable[[], int] = perf_counter_ns, readings: int = 3
) -> int:
    """The time of day, in nanoseconds, when ``perf_counter`` was 0.

    The process may lose its processor between two clocks. So both are read several times, and the closest pair counts.
    """
    found = []
    for _ in range(readings):
        before, now, after = counter(), time_of_day(), counter()
        found.append((after - before, now - (before + after) // 2))
    return min(found)[1]


class ExporterProcess:
    """Starts the exporter, and starts it again with growing pauses when it ends.

    ``most_bytes``: the most bytes that may wait in the gateway's memory; records above it are dropped and counted.
    While more than half of that waits, it admits no new request; live, slow and failed ones have the other half.
    ``command``: of the process.
    """

    def __init__(
        self,
        settings: ExportSettings,
        figures: Figures,
        *,
        most_bytes: int = _MOST_WAITING_BYTES,
        command: tuple[str, ...] = COMMAND,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._figures = figures
        self._settings = settings
        self._most_bytes = most_bytes
        self._command = command
        self._pause = pause
        self._requests: list[TracedRequest] = []
        self._content = self._last_size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._process: Process | None = None
        self._behind = False
        self._unreported = 0
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False

    def start(self) -> None:
        """Start the process, on the running event loop."""
        self._keeper = asyncio.ensure_future(self._keep_running())

    def admits(self) -> bool:
        """Whether a request that begins now may be traced. One that may not is counted as dropped."""
        if self._behind:
            self._figures.count(TRACES_DROPPED, ("full",))
        return not self._behind

    def add(self, request: TracedRequest) -> None:
        """Send ``request``, with those that follow soon."""
        self._requests.append(request)
        self._content += len(request.question) + len(request.answer)
        if len(self._requests) >= _BATCH or self._content >= _BATCH_CONTENT:
            self._send_requests()
        elif self._timer is None and self._keeper is not None:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_EVERY_S, self._send_requests)

    def send_metrics(self, batch: MetricBatch) -> None:
        """Send all metrics; a batch that does not fit is left out, for the next one tells the same and more."""
        self._send(batch)

    async def close(self) -> None:
        """Send the records that wait and end the process; after ``flush_timeout`` seconds, kill it."""
        self._closing = True
        self._send_requests()
        keeper, process = self._keeper, self._process
        if keeper is None:
            return
        if process is None or process.stdin is None:
            keeper.cancel()
        else:
            process.stdin.close()
            await asyncio.wait([keeper], timeout=self._settings.flush_timeout)
            if self._process is not None:
                process.kill()
        await asyncio.wait([keeper])

    def _send_requests(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        requests, self._requests, self._content = self._requests, [], 0
        if requests:
            self._send_batch(requests)
        self._behind = self._waiting > self._most_bytes // 2
        if self._behind and not self._closing:
            self._timer = asyncio.get_running_loop().call_later(_BATCH_EVERY_S, self._send_requests)

    def _send_batch(self, requests: list[TracedRequest]) -> None:
        batch = RequestBatch(epoch_ns(), requests)
        if self._pipe is None:
            self._figures.count(TRACES_DROPPED, ("died",), len(requests))
        elif self._send(batch):
            self._unreported += len(requests)
        else:
            self._figures.count(TRACES_DROPPED, ("full",), len(requests))

    @property
    def _pipe(self) -> asyncio.StreamWriter | None:
        """The pipe to the process; ``None`` if that does not run."""
        stdin = self._process.stdin if self._process is not None else None
        return None if stdin is None or stdin.transport.is_closing() else stdin

    @property
    def _waiting(self) -> int:
        """The bytes that wait in the gateway's memory."""
        stdin = self._pipe
        return 0 if stdin is None else stdin.transport.get_write_buffer_size()

    def _send(self, message: Message) -> bool:
        """Whether the message fits."""
        stdin = self._pipe
        if stdin is None:
            return False
        room = self._most_bytes - self._waiting
        if self._waiting and room < self._last_size:  # encoding what is dropped would cost requests their time
            return False
        try:
            data = frame(message)
        except Exception:  # such as a number that does not fit: the request that brought it has no part in this
            _log.exception("Traces cannot be written for the exporter")
            return False
        self._last_size = len(data)
        if room < len(data) and (self._waiting or isinstance(message, RequestBatch)):  # no later metrics are smaller
            return False
        stdin.write(data)
        return True

    # --- the process

    async def _keep_running(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._closing:
            began = perf_counter()
            try:
                await self._run_once()
            except OSError as error:
                _log.warning("The exporter of traces does not start: %s", error)
            self._figures.count(TRACES_DROPPED, ("died",), self._unreported)
            self._unreported = 0
            if self._closing:
                return
            self._figures.count(RESTARTS)
            pause = _FIRST_PAUSE_S if perf_counter() - began > _LIVED_WELL_S else min(pause * 2, _LONGEST_PAUSE_S)
            _log.warning("The exporter of traces has ended; it is started again in %.1f s", pause)
            await self._pause(pause)

    async def _run_once(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
        assert process.stdout is not None
        try:
            self._send(self._settings)
            async for line in process.stdout:
                self._take(line)
            await process.wait()
        finally:
            if process.stdin is not None:
                process.stdin.close()
            if process.returncode is None:
                process.kill()
            self._process = None

    def _take(self, line: bytes) -> None:
        try:
            report = _read_report(line)
        except ValueError:
            return  # not ours: something printed on the exporter's standard output
        self._unreported -= report.records
        self._figures.count(SPANS, ("sent",), report.spans)
        self._figures.count(SPANS, ("failed",), report.failed)
