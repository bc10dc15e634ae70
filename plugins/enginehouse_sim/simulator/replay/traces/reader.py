"""Requests of a trace, read row by row: a trace may be larger than memory. Its fields tell its format."""

from __future__ import annotations

import csv
import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from enginehouse import EnginehouseError


class TraceError(EnginehouseError):
    """A trace that cannot be read; the message names file, line and remedy."""


PREFIX_TOKENS = 512
"""The tokens of a prefix id whose trace does not say."""
LONGEST = 10_000_000
"""The most tokens of a prompt or an answer: no engine takes longer ones, so the field means something else."""


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One request: its arrival in seconds after the first one, and the lengths of prompt and answer in tokens.

    ``prefix_ids`` name the contents of the prompt from its beginning, ``prefix_tokens`` tokens each: prompts with equal
    leading ids begin with equal tokens. ``model`` and ``key``, the name of one of the gateway's keys, are empty if the
    trace does not say. ``stream``: whether the client asks for a stream.
    """

    arrival: float
    input_length: Annotated[int, msgspec.Meta(ge=0, le=LONGEST)]
    output_length: Annotated[int, msgspec.Meta(ge=0, le=LONGEST)]
    prefix_ids: Sequence[int] = ()
    prefix_tokens: int = PREFIX_TOKENS
    model: str = ""
    key: str = ""
    stream: bool = True


Row = Mapping[str, Any]
_ENOUGH_ROWS = 20
_LENGTHS = ("input_length", "output_length")


class Format(NamedTuple):
    """A format whose rows have the fields of ``needs``: the arrival, others, and the lengths of input and output.

    ``units`` are those of the fields, for error messages. ``seconds`` converts the first field. ``more``: the other
    fields by their names in ``TraceRequest``. ``block``: the tokens for each id of the prompt's beginning.
    """

    name: str
    needs: tuple[str, ...]
    units: str
    seconds: Callable[[Any], float]
    more: Mapping[str, str] = {}
    block: int = 512

    @property
    def wants(self) -> str:
        perhaps = ", ".join(name for name in self.more.values() if name not in self.needs)
        return ", ".join(self.needs) + (f" and perhaps {perhaps}" if perhaps else "")

    def fits(self, row: Row) -> bool:
        return row.keys() >= set(self.needs) and not (self.name == "mooncake" and "chat_id" in row)

    def doubt(self, rows: Sequence[Row]) -> str:
        """Why rows with these fields may have other units; empty if there is no reason."""
        if self.name == "mooncake" and (why := _in_seconds([row.get("timestamp") for row in rows])):
            return why
        for row in rows if self.more.get("prefix_ids") == "hash_ids" else ():
            length, ids = row.get("input_length"), row.get("hash_ids")
            if not (isinstance(length, int) and isinstance(ids, list) and ids):
                continue
            if abs(-(-length // self.block) - len(ids)) > 1:
                return f"{len(ids)} hash_ids for {length} tokens are about {length / len(ids):.0f} tokens each"
        return ""

    def request(self, row: Row) -> TraceRequest:
        """Convert a row. Raises ``ValueError``, whose message names the field."""
        first, input_length, output_length = self.needs[0], *self.needs[-2:]
        missing = [name for name in self.needs if row.get(name) is None]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        fields = {"prefix_tokens": self.block, "input_length": row[input_length], "output_length": row[output_length]}
        for field, name in self.more.items():
            value = row.get(name)
            if value is not None and value != "":
                is_text = field == "prefix_ids" and isinstance(value, str)
                fields[field] = value.split() if is_text else value
        try:
            return msgspec.convert({**fields, "arrival": self.seconds(row[first])}, TraceRequest, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None


def _number(value: Any) -> float:
    found: float = msgspec.convert(value, float, strict=False)
    if not math.isfinite(found):
        raise ValueError(f"{value!r} is not a finite number")
    return found


def _milliseconds(value: Any) -> float:
    return _number(value) / 1000


def _date(value: Any) -> float:
    """Seconds since the epoch; a time without a zone is UTC."""
    found: datetime = msgspec.convert(value, datetime, strict=False)
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def _in_seconds(values: Sequence[Any]) -> str:
    """Why timestamps are not whole milliseconds; empty if they may be."""
    times = [value for value in values if isinstance(value, int | float)]
    if broken := [time for time in times if time % 1]:
        return f"a timestamp of {broken[0]} looks like seconds"
    if len(times) >= _ENOUGH_ROWS and len(times) > max(times) - min(times):
        return f"{len(times)} requests in {max(times) - min(times)} ms are too many: the timestamps may be seconds"
    return ""


_HASHES = {"prefix_ids": "hash_ids"}
_NAMED = {name: name for name in ("prefix_ids", "prefix_tokens", "model", "key", "stream")}
FORMATS = (
    Format("azure", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), "dates", _date),
    Format("bailian", ("timestamp", "chat_id", *_LENGTHS), "seconds, 16 tokens for each hash id", _number, _HASHES, 16),
    Format(
        *("mooncake", ("timestamp", "hash_ids", *_LENGTHS), "whole milliseconds, 512 tokens for each hash id"),
        _milliseconds,
        _HASHES,
    ),
    Format("plain", ("arrival", *_LENGTHS), "seconds", _number, _NAMED),
)
"""The published traces of https://github.com/Azure/AzurePublicDataset (with dates of seven decimal places),
https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon and https://github.com/kvcache-ai/Mooncake, and the plain
format: one row for each request, as CSV or JSON lines."""


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
            f"Say --format {fitting[0].name} if it is one, or rename the fields to {FORMATS[-1].wants}"
        )
    return fitting[0]


_LOOKED_AT = 1000
"""The rows that decide the format."""
_OUT_OF_PLACE = 10_000
"""How many rows a request may stand before or after its place in the order of arrival."""
_LONGEST_S = 366 * 86400
"""The longest trace."""
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
