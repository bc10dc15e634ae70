"""Reads a trace from its file, row by row: a trace may be larger than memory."""

from __future__ import annotations

import csv
import heapq
import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from enginehouse_sim.simulator.replay.traces.formats import Format, Row, format_of
from enginehouse_sim.simulator.replay.traces.trace import TraceError, TraceRequest

_LOOKED_AT = 1000
"""The rows that decide the format."""
_OUT_OF_PLACE = 10_000
"""How many rows a request may stand before or after its place in the order of arrival."""
_LONGEST_S = 366 * 86400
"""The longest trace."""
_TOLD_EVERY = 256
_JSON = (".jsonl", ".json", ".ndjson")


class Trace:
    """The requests of a file in order of arrival, the first one at 0; at most ``limit`` of them. Iterate once.

    ``format``: the format's name; by default, the fields decide. ``share_read``: the share of the file that was read, 0
    to 1. Iterating raises ``TraceError``.
    """

    def __init__(self, path: Path, limit: int | None = None, format: str = "") -> None:
        self.path = path
        self.share_read = 0.0
        self._limit = limit
        self._format = format

    def __iter__(self) -> Iterator[TraceRequest]:
        requests = self._in_order(islice(self._requests(), self._limit))
        first = next(requests, None)
        if first is None:
            raise TraceError(f"{self.path} has no requests")
        for request in chain([first], requests):
            arrival = request.arrival - first.arrival
            if arrival > _LONGEST_S:
                problem = f"a request arrives {arrival:.3g} seconds after the first one: is the unit of time another"
                raise TraceError(f"{self.path}: {problem}?")
            yield msgspec.structs.replace(request, arrival=arrival)
        self.share_read = 1.0

    def watched(self, on_progress: Callable[[float], None]) -> Iterator[TraceRequest]:
        """Yield the requests. ``on_progress`` gets the share read, from time to time, and 1 at the end."""
        for number, request in enumerate(self, 1):
            yield request
            if number % _TOLD_EVERY == 0:
                on_progress(min(self.share_read, 1.0 if self._limit is None else number / self._limit))
        on_progress(1.0)

    def _requests(self) -> Iterator[tuple[int, TraceRequest]]:
        """The requests in the order of the file, with their lines."""
        rows = self._rows()
        known = list(islice(rows, _LOOKED_AT))
        if not known:
            return
        try:
            found = format_of([row for _, row in known], self._format)
        except TraceError as error:
            raise TraceError(f"{self.path}: {error}") from None
        for line, row in chain(known, rows):
            yield line, self._request(found, line, row)

    def _request(self, found: Format, line: int, row: Row) -> TraceRequest:
        try:
            request = found.request(row)
        except ValueError as error:
            problem = f"{error}; {found.name} rows have {found.wants}"
            raise TraceError(f"{self.path}, line {line}: {problem}") from None
        if not request.input_length:
            raise TraceError(f"{self.path}, line {line}: a request has at least 1 token of input")
        return request

    def _in_order(self, requests: Iterator[tuple[int, TraceRequest]]) -> Iterator[TraceRequest]:
        """Sort requests that are slightly out of order."""
        waiting = [(request.arrival, line, request) for line, request in islice(requests, _OUT_OF_PLACE)]
        heapq.heapify(waiting)
        now = -math.inf
        while waiting:
            after = next(requests, None)
            if after is None:
                arrival, line, request = heapq.heappop(waiting)
            else:
                arrival, line, request = heapq.heappushpop(waiting, (after[1].arrival, *after))
            if arrival < now:
                problem = f"arrives {now - arrival:g} s before a request {_OUT_OF_PLACE:,} lines above it"
                raise TraceError(f"{self.path}, line {line}: {problem}: sort the file by arrival")
            now = arrival
            yield request

    def _rows(self) -> Iterator[tuple[int, Row]]:
        yield from self._json_rows() if self.path.suffix in _JSON else self._csv_rows()

    def _csv_rows(self) -> Iterator[tuple[int, Row]]:
        reader = csv.DictReader(text for _, text in self._lines())
        try:
            for row in reader:
                yield reader.line_num, {name: value for name, value in row.items() if name is not None}
        except csv.Error as error:
            raise TraceError(f"{self.path}, line {reader.line_num + 1}: {error}; use JSON lines") from None

    def _json_rows(self) -> Iterator[tuple[int, Row]]:
        decoder = msgspec.json.Decoder(dict[str, Any])
        for number, line in self._lines():
            if line.strip():
                try:
                    yield number, decoder.decode(line)
                except msgspec.DecodeError as error:
                    problem = f"{error}; one JSON object in each line is wanted"
                    raise TraceError(f"{self.path}, line {number}: {problem}") from None

    def _lines(self) -> Iterator[tuple[int, str]]:
        try:
            with self.path.open("rb") as file:
                size, read = max(1, self.path.stat().st_size), 0
                for number, line in enumerate(file, 1):
                    read += len(line)
                    self.share_read = read / size
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except OSError as error:
            raise TraceError(f"{self.path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise TraceError(f"{self.path} is not UTF-8 text: {error}") from None
