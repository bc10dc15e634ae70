"""The line of the access log for one request."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache
from typing import Final

import msgspec

from enginehouse.errors import shortened
from enginehouse.records import RequestFacts

_LOGGER: Final = "enginehouse.access"
_LONGEST_SHARED: Final = 256
"""In characters. Clients choose paths and models, so longer parts are not kept for other lines."""

_THOUSANDTHS: Final = [f"{number:03}" for number in range(1000)]
_TENTHS: Final = [f"{number // 10}.{number % 10}" for number in range(1000)]


def text_line(facts: RequestFacts) -> str:
    """Such as ``... POST /v1/chat/completions 200 outcome=served model=m backend=a ... duration_ms=12.3 ...``.

    The same facts as those of ``json_line``, without a dict between: every request pays for this line.
    """
    key = first_byte = tokens = trace = ""
    arrived, path, model, attempts = facts.arrived, facts.path, facts.asked or "", len(facts.attempts)
    if facts.first_byte:
        first_byte = " first_byte_ms=" + _milliseconds(facts.first_byte - arrived)
    describe = _shared if len(path) + len(model) < _LONGEST_SHARED else _described
    described = describe(
        facts.method, path, facts.status, facts.outcome, model, facts.backend or "", facts.reason, attempts
    )
    if (name := facts.caller) is not None:
        key = f" key={_plain(name)}"
    if (answer := facts.tokens_out) is not None:
        tokens = f" input_tokens={facts.tokens_in or 0} output_tokens={answer}"
    elif events := facts.events:
        tokens = f" output_tokens={events}"
    if (trace_id := facts.trace_id) is not None:
        trace = f" trace_id={_plain(trace_id)}"
    took, own_id = _milliseconds(facts.ended - arrived), _plain(facts.id)
    return (
        f"{_times.text(facts.time)} {described}{key} duration_ms={took}{first_byte}{tokens} bytes={facts.bytes_out}"
        f" request_id={own_id}{trace}\n"
    )


def _described(
    method: str, path: str, status: int, outcome: str, model: str, backend: str, reason: str, attempts: int
) -> str:
    """The beginning of a line, which many share."""
    line = f"INFO {_LOGGER}: {method} {_plain(path)} {status} outcome={outcome}"
    if model:
        line += f" model={_plain(shortened(model))}"
    if backend:
        line += f" backend={_plain(backend)} reason={reason}"
    return line if attempts < 2 else f"{line} attempts={attempts}"


_shared = lru_cache(maxsize=512)(_described)


def json_line(facts: RequestFacts) -> str:
    """The same facts as a JSON object."""
    request = {"method": facts.method, "path": facts.path, "status": facts.status}
    message = f"{facts.method} {facts.path} {facts.status}"
    line = {"time": _json_time(facts.time), "level": "info", "logger": _LOGGER, "message": message}
    return msgspec.json.encode({**line, **request, **_facts(facts)}).decode() + "\n"


def _facts(facts: RequestFacts) -> dict[str, str | int | float]:
    """The known facts of a line, except for those at its beginning, which are the request's."""
    arrived, attempts, counted = facts.arrived, len(facts.attempts), facts.tokens_out is not None
    known = {
        "outcome": facts.outcome,
        "model": shortened(facts.asked) if facts.asked else None,
        "backend": facts.backend,
        "reason": facts.reason if facts.backend is not None else None,
        "attempts": attempts if attempts > 1 else None,
        "key": facts.caller,
        "duration_ms": round((facts.ended - arrived) * 1000, 1),
        "first_byte_ms": round((facts.first_byte - arrived) * 1000, 1) if facts.first_byte else None,
        "input_tokens": facts.tokens_in or 0 if counted else None,
        "output_tokens": facts.tokens_out if counted else facts.events or None,
        "bytes": facts.bytes_out,
        "request_id": facts.id,
        "trace_id": facts.trace_id,
    }
    return {name: value for name, value in known.items() if value is not None}


def dropped_line(at: float, count: int, json: bool) -> str:
    """The line with the number of missing lines."""
    text = f"{count} lines of the access log were dropped: they are read too slowly"
    if not json:
        return f"{_times.text(at)} WARNING {_LOGGER}: {text}\n"
    line = {"time": _json_time(at), "level": "warning", "logger": _LOGGER, "message": text}
    return msgspec.json.encode(line).decode() + "\n"


def _plain(text: str) -> str:
    """Text for a line of text. Clients choose ids and models, so unusual characters are escaped as in Python."""
    return text if text.isprintable() and " " not in text else ascii(text)


def _milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with one digit behind the point, which ``f"{...:.1f}"`` writes five times slower."""
    tenths = int(seconds * 10_000 + 0.5)
    return _TENTHS[tenths] if 0 <= tenths < 1000 else f"{tenths // 10}.{tenths % 10}"


class LineTimes:
    """Writes the times of lines, of which most are in the second of the one before."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, at: float) -> str:
        """``at``, in seconds of the epoch, as local time."""
        second = int(at)
        if second != self._second:
            self._second, self._text = second, f"{datetime.fromtimestamp(second):%Y-%m-%d %H:%M:%S}"
        return f"{self._text},{_THOUSANDTHS[int((at - second) * 1000)]}"


_times: Final = LineTimes()


def _json_time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
