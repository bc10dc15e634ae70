"""Sees every byte at the gateway's edges and every line of its log."""

from __future__ import annotations

import hashlib
import logging
import re
import traceback
from bisect import bisect_right
from typing import Protocol

from tests.chaos.asks import ENDLESS
from tests.chaos.endpoint import Endpoint
from tests.chaos.virtual_time import clock

_DETAIL = b"DETAIL-of-a-plugin"
_MARKS = (b"SECRET-", b"PROMPT-", _DETAIL)
_SECRET = re.compile(rb"SECRET-[\w-]*|PROMPT-|DETAIL-of-a-plugin")
_READS_LOG = re.compile(rb"GET /(?:api/)?logs")
"""The log has the tracebacks of plugins, for operators."""
_BEGIN = 16
_LOGS_SECRET = re.compile(rb"SECRET-[\w-]*|PROMPT-|" + ENDLESS.encode() * 257)
_PLUGIN_FAILED = re.compile(r"The \w+ '(moody|virtual|tests\.chaos\.plugins\._MoodyObserver)'( of plugin 'chaos')? ")
_KNOWN = (
    "The configuration cannot be used, and nothing has changed:",  # a change of the schedule does not fit the rest
    "The gateway can open no more connections",  # the schedule says so
    "The worker with pid ",  # the bench has killed it
    "No worker can be started; ",  # nor may another one begin at once
    "Cancel ",  # uvicorn's, for a client that neither reads nor leaves while the gateway stops
)
_NONCE = re.compile(rb"nonce-\d+-")


class Judge(Protocol):
    """Takes note of what must not be."""

    def violated(self, what: str) -> None: ...


class Story:
    """What happens in a run, in order."""

    def __init__(self, before: Story | None = None) -> None:
        self.events: list[tuple[float, str, str, bytes]] = [] if before is None else [*before.events]

    def lines(self) -> list[str]:
        """Everything that happened, for people."""
        return [f"{at:9.4f} {who} {what} {_short(data)}".rstrip() for at, who, what, data in self.events]

    def digest(self) -> str:
        """A checksum of everything that happened."""
        summed = hashlib.sha256()
        for at, who, what, data in self.events:
            summed.update(f"{at!r} {who} {what} ".encode())
            summed.update(data)
        return summed.hexdigest()


class Taps(logging.Handler):
    """Records what happens, in order, and finds secrets where they do not belong.

    ``sent`` has, for each nonce, the moments at which the gateway sent it to an engine; ``written`` for each of the
    clients' connections the moments and the bytes so far. Moments are numbers that only grow. ``before``: what was
    recorded of an earlier gateway of the same run.
    """

    def __init__(self, judge: Judge, before: Taps | None = None) -> None:
        super().__init__(logging.INFO)
        self.stopped_at: float | None = None
        self.sent: dict[bytes, list[tuple[int, str]]] = {}
        self.written: dict[str, list[tuple[int, int]]] = {}
        self._judge = judge
        self._begin: dict[str, bytes] = {}
        self.story: Story = Story(before.story if before is not None else None)
        self._events = self.story.events

    def note(self, who: str, what: str) -> None:
        self._events.append((clock.now, who, what, b""))

    def tap(self, endpoint: Endpoint, what: str, data: bytes) -> None:
        name = endpoint.name
        self._events.append((clock.now, name, what, data))
        if what == "read" and len(begin := self._begin.get(name, b"")) < _BEGIN:
            self._begin[name] = begin + data[:_BEGIN]
        if what != "write" or not name.startswith("gateway"):
            return
        moment = len(self._events)
        if name.startswith("gateway>"):
            if nonce := _NONCE.search(data):
                self.sent.setdefault(nonce[0], []).append((moment, name))
            own = b"SECRET-backend-" + name[8:].partition("#")[0].encode()
            for found in _secrets(data):
                if found not in (own, b"PROMPT-"):
                    self._judge.violated(f"{name} got {found!r}")
        else:
            written = self.written.setdefault(name, [])
            written.append((moment, len(data) + (written[-1][1] if written else 0)))
            for found in _secrets(data):
                if found != _DETAIL or not _READS_LOG.match(self._begin.get(name, b"")):
                    self._judge.violated(f"{name} got {found!r}")

    def moment_of(self, connection: str, offset: int) -> int:
        """When the byte at ``offset`` was written to a client's ``connection``."""
        written = self.written[connection]
        return written[bisect_right(written, offset, key=lambda each: each[1])][0]

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info))
        self._events.append((clock.now, record.name, f"{record.levelname} {text}", b""))
        if _LOGS_SECRET.search(text.encode()):
            self._judge.violated(f"a secret in the log: {text}")
        known = text.startswith(_KNOWN) or _PLUGIN_FAILED.match(text)
        if (record.levelno >= logging.ERROR and not known) or record.name.startswith("asyncio"):
            self._judge.violated(f"in the log: {text}")

    def access(self, lines: bytes) -> None:
        """Lines of the access log."""
        self._events.append((clock.now, "access log", "", lines))
        if _LOGS_SECRET.search(lines):
            self._judge.violated(f"a secret in the access log: {lines!r}")

    def traceback(self, error: BaseException) -> None:
        self.note("traceback", "".join(traceback.format_exception(error)))


def _secrets(data: bytes) -> list[bytes]:
    """Every secret in ``data``. The pattern alone takes ten times as long."""
    return _SECRET.findall(data) if any(mark in data for mark in _MARKS) else []


def _short(data: bytes) -> str:
    return "" if not data else repr(data) if len(data) < 600 else f"{data[:400]!r} ... {data[-150:]!r} ({len(data)})"
