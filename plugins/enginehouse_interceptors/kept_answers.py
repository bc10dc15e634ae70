"""Answers that are kept to be given again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from enginehouse_kit.interceptors import Answer, AnswerFilter, Event

_SAYS_NOTHING: Final = frozenset({"usage", "other", "error"})
"""Kinds of events."""


class _Kept(NamedTuple):
    answer: Answer
    until: float
    size: int


class KeptAnswers:
    """Keeps answers for so many ``seconds``, up to ``most_bytes`` together; those that were not asked for go first.

    As many bytes again may be collected of answers that are not whole yet.
    """

    def __init__(self, seconds: float, most_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most_bytes
        self._now = now
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._size = 0
        self._collected = 0

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

    def collect(self, size: int) -> bool:
        """Count ``size`` more bytes of an answer that comes; whether there is room for them."""
        if self._collected + size > self._most:
            return False
        self._collected += size
        return True

    def give_back(self, size: int) -> None:
        """Count bytes out that were collected."""
        self._collected -= size

    def _drop(self, key: bytes) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= found.size


class KeepingFilter(AnswerFilter):
    """Has ``answers`` keep a whole answer of status 200, unless it has more than ``most`` bytes, or is encoded.

    A stream in which no choice says anything, not even that it ends, is its engine's failure, and not kept. ``ended``
    is called in any case, before that.
    """

    def __init__(self, answers: KeptAnswers, key: bytes, most: int, ended: Callable[[], None] | None = None) -> None:
        self._answers = answers
        self._key = key
        self._most = most
        self._ended = ended
        self._type = ""
        self._events: list[bytes] = []
        self._size = 0
        self._speaks = False

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        if status == 200 and "content-encoding" not in headers:
            self._type = headers.get("content-type", "")

    def event(self, event: Event) -> Event:
        self._speaks = self._speaks or event.kind not in _SAYS_NOTHING
        if self._type:
            piece = b"data: %s\n\n" % msgspec.json.encode(event.data)
            size = len(piece)
            if self._size + size <= self._most and self._answers.collect(size):
                self._events.append(piece)
                self._size += size
            else:
                self._type = ""
                self._give_back()
        return event

    def end(self) -> None:
        if not self._speaks:
            self._type = ""
        self._done(b"".join(self._events) + b"data: [DONE]\n\n")

    def whole(self, body: bytes) -> None:
        self._done(body)

    def broken(self, error: Mapping[str, Any]) -> None:
        self._over()

    def _done(self, body: bytes) -> None:
        self._over()
        if self._type and len(body) <= self._most:
            self._answers.keep(self._key, Answer(200, body, self._type), len(body))

    def _over(self) -> None:
        self._give_back()
        if self._ended is not None:
            self._ended()

    def _give_back(self) -> None:
        self._answers.give_back(self._size)
        self._size = 0
        self._events.clear()
