"""The line of the access log for one request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from enginehouse.domain.errors import shortened
from enginehouse.telemetry.record import AttemptRecord, Ending, first_answered

_LOGGER: Final = "enginehouse.access"
_LONGEST_SHARED: Final = 256
"""In characters. Clients choose paths and models, so longer parts are not kept for other lines."""

_THOUSANDTHS: Final = [f"{number:03}" for number in range(1000)]
_TENTHS: Final = [f"{number // 10}.{number % 10}" for number in range(1000)]


class Access(NamedTuple):
    """A request that has ended, for its line. ``began`` is in seconds of the gateway's clock, ``at`` of the epoch."""

    at: float
    request_id: bytes
    trace_id: bytes
    method: str
    path: str
    model: str
    began: float
    ended: float
    attempts: Sequence[AttemptRecord]
    ending: Ending


AccessEntry = tuple[float, bytes, bytes, str, str, str, float, float, Sequence[AttemptRecord], Ending]
"""The fields of an ``Access`` in their order."""


def text_line(entry: AccessEntry) -> str:
    """Such as ``... POST /v1/chat/completions 200 model=m backend=a ... 12.3ms``.

    The same facts as those of ``json_line``, without a dict between: every request pays for this line.
    """
    at, request_id, trace_id, method, path, model, began, ended, attempts, ending = entry
    backend = reason = first_byte = tokens = trace = ""
    if attempts:
        route = attempts[-1].route
        backend, reason = route.chosen.backend, route.reason._value_  # .value takes 0.2 us in Python 3.10
        answered = attempts[0] if len(attempts) == 1 else first_answered(attempts)
        if seen := answered.first_byte:
            first_byte = " first_byte_ms=" + _milliseconds(seen - began)
    describe = _shared if len(path) + len(model) < _LONGEST_SHARED else _described
    described = describe(method, path, ending.status, ending.outcome, model, backend, reason, len(attempts))
    counted = ending.tokens
    if counted.source == "usage":
        tokens = f" input_tokens={counted.input} output_tokens={counted.output}"
    elif counted.source:
        tokens = f" output_tokens={counted.output}"
    if trace_id:
        trace = f" trace_id={_plain(trace_id.decode())}"
    took, own_id = _milliseconds(ended - began), _plain(request_id.decode())
    return (
        f"{_text_time(at)} {described} duration_ms={took}{first_byte}{tokens} bytes={ending.sent_bytes}"
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


def json_line(entry: AccessEntry) -> str:
    """The same facts as a JSON object."""
    access = Access._make(entry)
    request = {"method": access.method, "path": access.path, "status": access.ending.status}
    message = f"{access.method} {access.path} {access.ending.status}"
    line = {"time": _json_time(access.at), "level": "info", "logger": _LOGGER, "message": message}
    return msgspec.json.encode({**line, **request, **_facts(access)}).decode() + "\n"


def _facts(access: Access) -> dict[str, str | int | float]:
    """The known facts of a line, except for those at its beginning, which are the request's."""
    ending, attempts, began = access.ending, access.attempts, access.began
    facts: dict[str, str | int | float] = {"outcome": ending.outcome}
    if access.model:
        facts["model"] = shortened(access.model)
    if attempts:
        route = attempts[-1].route
        facts["backend"] = route.chosen.backend
        facts["reason"] = route.reason.value
        if len(attempts) > 1:
            facts["attempts"] = len(attempts)
    facts["duration_ms"] = round((access.ended - began) * 1000, 1)
    if attempts and (first_byte := first_answered(attempts).first_byte):
        facts["first_byte_ms"] = round((first_byte - began) * 1000, 1)
    tokens = ending.tokens
    if tokens.source == "usage":
        facts["input_tokens"] = tokens.input
    if tokens.source:
        facts["output_tokens"] = tokens.output
    facts["bytes"] = ending.sent_bytes
    facts["request_id"] = access.request_id.decode()
    if access.trace_id:
        facts["trace_id"] = access.trace_id.decode()
    return facts


def dropped_line(at: float, count: int, json: bool) -> str:
    """The line with the number of missing lines."""
    text = f"{count} lines of the access log were dropped: they are read too slowly"
    if not json:
        return f"{_text_time(at)} WARNING {_LOGGER}: {text}\n"
    line = {"time": _json_time(at), "level": "warning", "logger": _LOGGER, "message": text}
    return msgspec.json.encode(line).decode() + "\n"


def _plain(text: str) -> str:
    """Text for a line of text. Clients choose ids and models, so unusual characters are escaped as in Python."""
    return text if text.isprintable() and " " not in text else ascii(text)


def _milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with one digit behind the point, which ``f"{...:.1f}"`` writes five times slower."""
    tenths = int(seconds * 10_000 + 0.5)
    return _TENTHS[tenths] if 0 <= tenths < 1000 else f"{tenths // 10}.{tenths % 10}"


def _text_time(at: float) -> str:
    second = int(at)
    return f"{_text_second(second)},{_THOUSANDTHS[int((at - second) * 1000)]}"


@lru_cache(maxsize=1)
def _text_second(at: int) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def _json_time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
