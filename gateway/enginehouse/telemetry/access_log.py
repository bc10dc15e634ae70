"""The access log: one line for each request, written several at once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from time import time
from typing import NamedTuple

import msgspec

from enginehouse.domain.errors import shortened
from enginehouse.telemetry.record import AttemptRecord, Ending, first_answered

_WRITE_EVERY_S = 0.5
_BATCH = 256
_MOST_WAITING = 20_000
_LOGGER = "enginehouse.access"
Write = Callable[[bytes], None]


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
"""The fields of an ``Access`` in their order."""


class AccessLog:
    """Collects lines and has them written by another thread, so that a slow reader of them delays no request.

    The event loop makes the lines: a thread that did would take the interpreter from it for milliseconds at once.
    ``json``: each line is a JSON object. Of more than 20,000 lines that wait, further ones are only counted.
    """

    def __init__(self, *, json: bool, write: Write | None = None) -> None:
        self.json = json
        self._write = write or _to_standard_error
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._dropped = 0

    def add(self, entry: AccessEntry) -> None:
        """Write a line, with those that follow soon."""
        waiting = self._waiting
        if len(waiting) >= _MOST_WAITING:
            self._dropped += 1
            return
        waiting.append((json_line if self.json else text_line)(Access._make(entry)))
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
        if self._dropped:
            self._waiting.append(_dropped_line(time(), self._dropped, self.json))
        batch, self._waiting, self._dropped = "".join(self._waiting), [], 0
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, self._write, batch.encode(errors="replace"))
        self._writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._writing = None
        writing.exception()  # a broken pipe is no reason to say so on the same pipe
        if len(self._waiting) >= _BATCH:
            self._start_writing()
        elif self._waiting:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_EVERY_S, self._start_writing)


def text_line(access: Access) -> str:
    """Such as ``... POST /v1/chat/completions 200 model=m backend=a ... 12.3ms``.

    The same facts as those of ``json_line``, without a dict between: every request pays for this line.
    """
    ending, attempts, began = access.ending, access.attempts, access.began
    line = f"{access.method} {_plain(access.path)} {ending.status} outcome={ending.outcome}"
    if access.model:
        line += f" model={_plain(shortened(access.model))}"
    if attempts:
        route = attempts[-1].route
        line += f" backend={_plain(route.chosen.backend)} reason={route.reason.value}"
        if len(attempts) > 1:
            line += f" attempts={len(attempts)}"
    line += f" duration_ms={(access.ended - began) * 1000:.1f}"
    if attempts and (first_byte := first_answered(attempts).first_byte):
        line += f" first_byte_ms={(first_byte - began) * 1000:.1f}"
    source, tokens = ending.tokens.source, ending.tokens
    if source:
        line += f" input_tokens={tokens.input}" * (source == "usage") + f" output_tokens={tokens.output}"
    line += f" bytes={ending.sent_bytes} request_id={_plain(access.request_id.decode())}"
    if access.trace_id:
        line += f" trace_id={_plain(access.trace_id.decode())}"
    return f"{_text_time(access.at)} INFO {_LOGGER}: {line}\n"


def json_line(access: Access) -> str:
    """The same facts as a JSON object."""
    request = {"method": access.method, "path": access.path, "status": access.ending.status}
    message = f"{access.method} {access.path} {access.ending.status}"
    line = {"time": _json_time(access.at), "level": "info", "logger": _LOGGER, "message": message}
    return msgspec.json.encode({**line, **request, **_facts(access)}).decode() + "\n"


def _facts(access: Access) -> dict[str, str | int | float]:
    """The known facts of a line, but for those of the request that stand first."""
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


def _plain(text: str) -> str:
    """Text on a line of text. Clients choose ids and models, so odd ones are written as Python would."""
    return text if text.isprintable() and " " not in text else ascii(text)


def _dropped_line(at: float, count: int, json: bool) -> str:
    text = f"{count} lines of the access log were dropped: they are read too slowly"
    if not json:
        return f"{_text_time(at)} WARNING {_LOGGER}: {text}\n"
    line = {"time": _json_time(at), "level": "warning", "logger": _LOGGER, "message": text}
    return msgspec.json.encode(line).decode() + "\n"


def _text_time(at: float) -> str:
    return f"{_text_second(int(at))},{int(at % 1 * 1000):03}"


@lru_cache(maxsize=1)
def _text_second(at: int) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def _json_time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def _to_standard_error(data: bytes) -> None:
    fd = sys.stderr.fileno()
    while data:
        data = data[os.write(fd, data) :]
