"""Answers that are kept to be given again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from enginehouse_kit.interceptors import Answer, AnswerFilter, Event, InterceptedRequest

_object = msgspec.json.Decoder(dict[str, Any]).decode


def asked_of(request: InterceptedRequest) -> dict[str, Any]:
    """The decoded body; empty if it is no JSON object."""
    try:
        return _object(request.body)
    except (ValueError, RecursionError):
        return {}


def key_of(request: InterceptedRequest, *more: str) -> bytes:
    """The same for the same body of the same caller at the same path, however its JSON is spelt."""
    asked = asked_of(request) or request.body
    parts = [request.path, request.caller, asked, more]
    return sha256(msgspec.json.encode(parts, order="deterministic")).digest()


class _Kept(NamedTuple):
    answer: Answer
    until: float
    size: int


class KeptAnswers:
    """Keeps answers for so many ``seconds``, up to ``most_bytes`` together; those that were not asked for go first."""

    def __init__(self, seconds: float, most_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most_bytes
        self._now = now
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._size = 0

    def find(self, key: bytes) -> Answer | None:
        """The answer of that key, if it is still kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        if self._now() > found.until:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return found.answer

    def keep(self, key: bytes, answer: Answer, size: int) -> None:
        """Keep an answer of ``size`` bytes in place of an earlier one."""
        self._drop(key)
        self._kept[key] = _Kept(answer, self._now() + self._seconds, size)
        self._size += size
        while self._size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= found.size


class KeepingFilter(AnswerFilter):
    """Gives a whole answer of status 200 to ``keep``, with its size, unless it has more than ``most`` bytes.

    ``ended`` is called in any case, before ``keep``.
    """

    def __init__(self, most: int, keep: Callable[[Answer, int], None], ended: Callable[[], None] | None = None) -> None:
        self._most = most
        self._keep = keep
        self._ended = ended
        self._type = ""
        self._events: list[bytes] = []
        self._size = 0

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self._type = headers.get("content-type", "") if status == 200 else ""

    def event(self, event: Event) -> Event:
        if self._size <= self._most:
            self._events.append(b"data: %s\n\n" % msgspec.json.encode(event.data))
            self._size += len(self._events[-1])
            if self._size > self._most:
                self._events.clear()
        return event

    def end(self) -> None:
        self._done(b"".join(self._events) + b"data: [DONE]\n\n")

    def whole(self, body: bytes) -> None:
        self._size = len(body)
        self._done(body)

    def broken(self, error: Mapping[str, Any]) -> None:
        if self._ended is not None:
            self._ended()

    def _done(self, body: bytes) -> None:
        if self._ended is not None:
            self._ended()
        if self._type and self._size <= self._most:
            self._keep(Answer(200, body, self._type), len(body))
