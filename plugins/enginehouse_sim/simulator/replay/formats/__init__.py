"""Trace formats. The fields of a file tell its format."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from enginehouse_sim.simulator.replay.formats.azure import Azure
from enginehouse_sim.simulator.replay.formats.mooncake import Mooncake
from enginehouse_sim.simulator.replay.formats.plain import Plain
from enginehouse_sim.simulator.replay.formats.row import Format
from enginehouse_sim.simulator.replay.trace import TraceError, TraceRequest

FORMATS: Sequence[Format] = (Azure(), Mooncake(), Plain())


def read_trace(path: Path, limit: int | None = None) -> list[TraceRequest]:
    """The requests of a trace in order of arrival, the first one at 0; at most ``limit`` of them.

    Raises ``TraceError``.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = _json_rows(path, lines) if path.suffix in (".jsonl", ".json", ".ndjson") else _csv_rows(lines)
            requests = list(_requests(path, rows, limit))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from error
    if not requests:
        raise TraceError(f"{path} has no requests")
    requests.sort(key=lambda request: request.arrival)
    first = requests[0].arrival
    return [msgspec.structs.replace(request, arrival=request.arrival - first) for request in requests]


Row = Mapping[str, Any]


def _requests(path: Path, rows: Iterator[tuple[int, Row]], limit: int | None) -> Iterator[TraceRequest]:
    found: Format | None = None
    for number, (line, row) in enumerate(rows):
        if number == limit:
            return
        found = found or _format(path, row)
        try:
            request = found.request(row)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{path}, line {line}: {found.name} rows have {found.wants} ({error!r})") from None
        if request.input_length < 1 or request.output_length < 0:
            raise TraceError(f"{path}, line {line}: a request has at least 1 token of input, and no fewer than 0 out")
        yield request


def _format(path: Path, row: Row) -> Format:
    for each in FORMATS:
        if each.fits(row):
            return each
    wanted = "; ".join(f"{each.name}: {each.wants}" for each in FORMATS)
    raise TraceError(f"{path} has the fields {', '.join(row)}, and no format has those. {wanted}")


def _csv_rows(lines: Iterator[str]) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(lines)
    for row in reader:
        yield reader.line_num, {name: value for name, value in row.items() if name is not None}


def _json_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, Row]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, decoder.decode(line)
            except msgspec.DecodeError as error:
                raise TraceError(f"{path}, line {number}: {error}; one JSON object in each line is wanted") from None
