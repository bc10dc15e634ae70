"""The access log: one line for each request, written several at once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import msgspec

from enginehouse.domain.errors import shortened
from enginehouse.telemetry.record import AttemptRecord, Ending, first_answered

_WRITE_EVERY_S = 0.5
_BATCH = 256
_MOST_WAITING = 20_000
_LOGGER = "enginehouse.access"
Write = Callable[[bytes], object]


class Access(NamedTuple):
    """A request that has ended, for its line. ``began`` is in ``perf_counter`` seconds, ``at`` of the epoch."""

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
"""The fields of an ``Access`` in their order: objects are made only when lines are written."""


class AccessLog:
    """Collects lines and has them written by another thread, so that a slow reader of them delays no request.

    ``json``: each line is a JSON object. Of more than 20,000 lines that wait, further ones are only counted.
    """

    def __init__(self, *, json: bool, write: Write | None = None) -> None:
        self.json = json
        self._write = write or _to_standard_error
        self._waiting: list[AccessEntry] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._dropped = 0

    def add(self, entry: AccessEntry) -> None:
        """Write a line, with those that follow soon."""
        waiting = self._waiting
        if len(waiting) >= _MOST_WAITING:
            self._dropped += 1
            return
        waiting.append(entry)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_EVERY_S, self._start_writing)
        elif len(waiting) == _BATCH:
            self._start_writing()

    async def close(self) -> None:
        """Write all that waits."""
        while self._waiting or self._writing is not None:
            if self._writing is None:
                self._start_writing()
            if self._writing is not None:
                await asyncio.wait([self._writing])
                await asyncio.sleep(0)  # until its callback has run

    def _start_writing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None or not self._waiting:
            return
        batch, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, self._write_batch, batch, dropped)
        self._writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        writing.exception()  # a broken pipe is no reason to say so on the same pipe
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_EVERY_S, self._start_writing)

    def _write_batch(self, batch: Sequence[AccessEntry], dropped: int) -> None:
        as_line = json_line if self.json else text_line
        lines = [as_line(Access._make(entry)) for entry in batch]
        if dropped:
            lines.append(_dropped_line(batch[-1][0], dropped, self.json))
        self._write("".join(lines).encode(errors="replace"))


def text_line(access: Access) -> str:
    """Such as ``... POST /v1/chat/completions 200 model=m backend=a ... 12.3ms``."""
    facts = _facts(access)
    told = " ".join(f"{name}={_plain(value)}" for name, value in facts.items() if name not in _IN_FRONT)
    request = f"{access.method} {_plain(access.path)} {access.ending.status}"
    return f"{_text_time(access.at)} INFO {_LOGGER}: {request} {told}\n"


def json_line(access: Access) -> str:
    """The same facts as a JSON object."""
    facts = _facts(access)
    message = f"{access.method} {access.path} {access.ending.status}"
    line = {"time": _json_time(access.at), "level": "info", "logger": _LOGGER, "message": message, **facts}
    return msgspec.json.encode(line).decode() + "\n"


_IN_FRONT = ("method", "path", "status")


def _facts(access: Access) -> dict[str, Any]:
    """The facts of a line. Unknown ones are left out."""
    ending, attempts = access.ending, access.attempts
    last = attempts[-1] if attempts else None
    first_byte = first_answered(attempts).first_byte if attempts else 0.0
    facts: dict[str, Any] = {
        "method": access.method,
        "path": access.path,
        "status": ending.status,
        "outcome": ending.outcome,
        "model": shortened(access.model),
        "backend": last.route.chosen.backend if last is not None else "",
        "reason": last.route.reason.value if last is not None else "",
        "attempts": len(attempts) if len(attempts) > 1 else 0,
        "duration_ms": round((access.ended - access.began) * 1000, 1),
        "first_byte_ms": round((first_byte - access.began) * 1000, 1) if first_byte else None,
        "input_tokens": ending.tokens.input if ending.tokens.source == "usage" else None,
        "output_tokens": ending.tokens.output if ending.tokens.source else None,
        "bytes": ending.sent_bytes,
        "request_id": access.request_id.decode(),
        "trace_id": access.trace_id.decode(),
    }
    return {name: value for name, value in facts.items() if value or name in ("status", "bytes")}


def _plain(value: object) -> str:
    """A value on a line of text. Clients choose ids and models, so odd ones are written as Python would."""
    text = str(value)
    return text if text.isprintable() and " " not in text else ascii(text)


def _dropped_line(at: float, count: int, json: bool) -> str:
    text = f"{count} lines of the access log were dropped: they are read too slowly"
    if not json:
        return f"{_text_time(at)} WARNING {_LOGGER}: {text}\n"
    line = {"time": _json_time(at), "level": "warning", "logger": _LOGGER, "message": text}
    return msgspec.json.encode(line).decode() + "\n"


def _text_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S},{int(at % 1 * 1000):03}"


def _json_time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def _to_standard_error(data: bytes) -> None:
    fd = sys.stderr.fileno()
    while data:
        data = data[os.write(fd, data) :]
