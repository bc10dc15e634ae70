"""Reads a trace from its file, row by row: a trace may be larger than memory. Its fields tell its format."""

from __future__ import annotations

import csv
import heapq
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from enginehouse_sim.simulator.replay.traces.trace import TraceError, TraceRequest

Row = Mapping[str, Any]
LONGEST = 10_000_000
"""The most tokens of a prompt or an answer: no engine takes longer ones, so the field means something else."""


class Format(ABC):
    """Reads rows with the fields ``needs``. ``wants`` names all fields, and ``units`` their units, in error messages.

    ``block``: the tokens for which each hash id stands; 0 without hash ids.
    """

    name: ClassVar[str]
    wants: ClassVar[str]
    units: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    block: ClassVar[int] = 0

    def fits(self, row: Row) -> bool:
        """Whether the row has the fields of this format."""
        return self.needs <= row.keys()

    def doubt(self, rows: Sequence[Row]) -> str:
        """Why rows with these fields may have other units; empty if there is no reason."""
        for length, ids in _blocks(rows) if self.block else ():
            if abs(-(-length // self.block) - ids) > 1:
                return f"{ids} hash_ids for {length} tokens are about {length / ids:.0f} tokens each"
        return ""

    @abstractmethod
    def request(self, row: Row) -> TraceRequest:
        """Convert a row. Raises ``ValueError``, whose message names the field."""


def text(row: Row, name: str) -> str:
    """The field of that name. Raises ``ValueError``."""
    return _converted(row, name, str, "a text")


def number(row: Row, name: str) -> float:
    """The field of that name, as a finite number. Raises ``ValueError``."""
    found = _converted(row, name, float, "a number")
    if not math.isfinite(found):
        raise ValueError(f"{name} is {row[name]!r}, not a number")
    return found


def length(row: Row, name: str) -> int:
    """The field of that name, as a number of tokens. Raises ``ValueError``."""
    found = _converted(row, name, int, "a whole number")
    if not 0 <= found <= LONGEST:
        raise ValueError(f"{name} is {found}, which is {'below 0' if found < 0 else f'above {LONGEST:,}'}")
    return found


def ids(row: Row, name: str) -> tuple[int, ...]:
    """The ids in the field of that name, in CSV with spaces between; none without it. Raises ``ValueError``."""
    value = row.get(name) or ()
    try:
        return tuple(map(int, value.split() if isinstance(value, str) else value))
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}, not whole numbers") from None


_Value = TypeVar("_Value", int, float, str)


def _converted(row: Row, name: str, to: Callable[[Any], _Value], wanted: str) -> _Value:
    if row.get(name) is None:
        raise ValueError(f"{name} is missing")
    try:
        return to(row[name])
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {row[name]!r}, not {wanted}") from None


def _blocks(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """The length and the number of hash ids of each row that has both."""
    for row in rows:
        length, ids = row.get("input_length"), row.get("hash_ids")
        if isinstance(length, int) and isinstance(ids, list) and ids:
            yield length, len(ids)


_FRACTION = re.compile(r"\.(\d+)")


class Azure(Format):
    """CSV with a timestamp and two lengths. The timestamps have seven decimal places."""

    name = "azure"
    wants = "TIMESTAMP, ContextTokens, GeneratedTokens"
    units = "dates"
    needs = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=_seconds(text(row, "TIMESTAMP")),
            input_length=length(row, "ContextTokens"),
            output_length=length(row, "GeneratedTokens"),
        )


def _seconds(date: str) -> float:
    """Seconds since the epoch; a time without a zone is UTC. Raises ``ValueError``."""
    try:
        whole = datetime.fromisoformat(_FRACTION.sub("", date).replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"TIMESTAMP is {date!r}, not a date") from None
    fraction = _FRACTION.search(date)
    if whole.tzinfo is None:
        whole = whole.replace(tzinfo=timezone.utc)
    return whole.timestamp() + (float(f"0.{fraction[1]}") if fraction else 0.0)


class Bailian(Format):
    """JSON lines with seconds, two lengths, the turn of a chat, and a hash id for each 16 tokens of the prompt."""

    name = "bailian"
    wants = "chat_id, timestamp, input_length, output_length and perhaps hash_ids"
    units = "seconds, 16 tokens for each hash id"
    needs = frozenset({"chat_id", "timestamp", "input_length", "output_length"})
    block = 16

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=number(row, "timestamp"),
            input_length=length(row, "input_length"),
            output_length=length(row, "output_length"),
            prefix_ids=ids(row, "hash_ids"),
            prefix_tokens=self.block,
        )


_MOST_PER_MS = 1.0
_ENOUGH_ROWS = 20


class Mooncake(Format):
    """JSON lines with whole milliseconds, two lengths, and a hash id for each 512 tokens of the prompt."""

    name = "mooncake"
    wants = "timestamp, input_length, output_length, hash_ids"
    units = "whole milliseconds, 512 tokens for each hash id"
    needs = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
    block = 512

    def fits(self, row: Row) -> bool:
        return super().fits(row) and "chat_id" not in row

    def doubt(self, rows: Sequence[Row]) -> str:
        times = [row["timestamp"] for row in rows if isinstance(row.get("timestamp"), int | float)]
        if any(time % 1 for time in times):
            return f"a timestamp of {next(time for time in times if time % 1)} looks like seconds"
        if len(times) >= _ENOUGH_ROWS and len(times) > _MOST_PER_MS * (max(times) - min(times)):
            return f"{len(times)} requests in {max(times) - min(times)} ms are too many: the timestamps may be seconds"
        return super().doubt(rows)

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=number(row, "timestamp") / 1000,
            input_length=length(row, "input_length"),
            output_length=length(row, "output_length"),
            prefix_ids=ids(row, "hash_ids"),
            prefix_tokens=self.block,
        )


class Plain(Format):
    """Arrival in seconds, lengths in tokens; optional prefix ids (in CSV separated by spaces), model, key, stream."""

    name = "plain"
    wants = "arrival (seconds), input_length, output_length and perhaps prefix_ids, prefix_tokens, model, key, stream"
    units = "seconds"
    needs = frozenset({"arrival", "input_length", "output_length"})

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=number(row, "arrival"),
            input_length=length(row, "input_length"),
            output_length=length(row, "output_length"),
            prefix_ids=ids(row, "prefix_ids"),
            prefix_tokens=length(row, "prefix_tokens") if row.get("prefix_tokens") else 512,
            model=str(row.get("model") or ""),
            key=str(row.get("key") or ""),
            stream=_flag(row.get("stream")),
        )


def _flag(value: Any) -> bool:
    """``true`` or ``false``, in CSV as text. Absent, it is true."""
    text = "true" if value is None or value == "" else str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"stream is true or false, not {value!r}")
    return text == "true"


FORMATS: Sequence[Format] = (Azure(), Bailian(), Mooncake(), Plain())


def format_of(rows: Sequence[Row], name: str = "") -> Format:
    """The format called ``name``, by default the one that fits ``rows``, the first rows of a trace.

    Raises ``TraceError`` if no format fits, if several do, or if the units are in doubt.
    """
    if name:
        return next(each for each in FORMATS if each.name == name)
    fitting = [each for each in FORMATS if each.fits(rows[0])]
    if not fitting:
        wanted = "; ".join(f"{each.name}: {each.wants}" for each in FORMATS)
        raise TraceError(f"the fields are {', '.join(rows[0])}, and no format has those. {wanted}")
    if len(fitting) > 1:
        names = " and ".join(each.name for each in fitting)
        raise TraceError(f"the fields are those of {names}: say which with --format")
    if doubt := fitting[0].doubt(rows):
        raise TraceError(
            f"the fields are those of {fitting[0].name} ({fitting[0].units}), but {doubt}. "
            f"Say --format {fitting[0].name} if it is one, or rename the fields to {Plain.wants}"
        )
    return fitting[0]


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
