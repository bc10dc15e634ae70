"""Tells a silence of an engine that is too long from a usual one."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

_KNOWN: Final = 3
"""So many silences of a kind have ended before it is known how long they usually are."""
_REMEMBERED: Final = 50
_TIMES: Final = 5
"""A silence that is so many times as long as usual is too long."""
_READS: Final = 50.0
_WRITES: Final = 10.0
"""Tokens a second, of an engine that is taken for a slow one."""
_SHORT_PROMPT: Final = 500
"""Tokens: reading fewer takes about as long."""
_LONG_ANSWER: Final = 4096
"""Tokens of an answer: how many it may have is not known."""


class SeenRequest(NamedTuple):
    """One live request of an engine.

    ``key``: what tells it from others. ``pieces``: how many pieces of its answer have come.
    """

    key: Hashable
    pieces: int
    stream: bool
    prompt_tokens: int


class _Silence:
    """A silence since ``since``, after ``pieces`` pieces of the answer."""

    __slots__ = ("asked", "pieces", "since")

    def __init__(self, pieces: int, since: float, asked: SeenRequest) -> None:
        self.pieces = pieces
        self.since = since
        self.asked = asked


class Silences:
    """The silences of the live requests of one engine. Times are in seconds of any clock."""

    def __init__(self) -> None:
        self._live: dict[Hashable, _Silence] = {}
        self._ended: dict[str, deque[float]] = {
            kind: deque(maxlen=_REMEMBERED) for kind in ("reading", "between", "whole")
        }

    def look(self, now: float, requests: Iterable[SeenRequest]) -> None:
        """Note how far the live requests are."""
        before, self._live = self._live, {}
        for each in requests:
            silence = before.get(each.key)
            if silence is not None and each.pieces > silence.pieces:
                self._ended[_kind(silence)].append((now - silence.since) / _amount(silence))
                silence = None
            if silence is None or each.pieces < silence.pieces:
                silence = _Silence(each.pieces, now, each)
            self._live[each.key] = silence

    def too_long(self, now: float, at_least: float) -> float | None:
        """The seconds for which no request has got anything, if each of them has waited too long; else ``None``.

        Each has if it has waited for ``at_least`` seconds, and for five times what is usual.
        """
        if not self._live or any(now - each.since < max(at_least, self._most(each)) for each in self._live.values()):
            return None
        return min(now - each.since for each in self._live.values())

    def forgive(self, now: float) -> None:
        """Count the silences from ``now``: the engine has just shown that it serves."""
        for each in self._live.values():
            each.since = now

    def _most(self, silence: _Silence) -> float:
        kind = _kind(silence)
        ended = self._ended[kind]
        if len(ended) >= _KNOWN:
            return _TIMES * max(ended) * _amount(silence)
        if kind == "between":
            return 0.0
        asked = silence.asked
        written = 0.0 if kind == "reading" else _LONG_ANSWER / _WRITES
        return asked.prompt_tokens / _READS + written


def _kind(silence: _Silence) -> str:
    return "between" if silence.pieces else "reading" if silence.asked.stream else "whole"


def _amount(silence: _Silence) -> float:
    """By what a silence is measured: the prompt that is read, or nothing."""
    return max(silence.asked.prompt_tokens, _SHORT_PROMPT) if _kind(silence) == "reading" else 1.0
