"""Stop strings."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Follows one answer, and ends it before the first stop string, or after it with ``include``.

    A stop string may be spread over any number of tokens.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self._stops = stops
        self._include = include
        self._hold = 0 if include else max(len(stop) for stop in stops) - 1
        self._seen = max(len(stop) for stop in stops) - 1
        self._text = ""
        self._shown = 0

    def feed(self, text: str, last: bool) -> tuple[str, str | None]:
        """The text to show after ``text`` was generated, and the stop string found, if any.

        Text that may be the beginning of a stop string is held back until that is decided, or the answer ends.
        """
        self._text += text
        found = min(((at, stop) for stop in self._stops if (at := self._text.find(stop)) >= 0), default=None)
        if found is not None:
            at, stop = found
            return self._text[self._shown : at + len(stop) * self._include], stop
        shown = len(self._text) if last else max(self._shown, len(self._text) - self._hold)
        new = self._text[self._shown : shown]
        self._trim(shown)
        return new, None

    def skip(self, text: str) -> str:
        """The text to show of text in which stop strings do not apply."""
        shown = self._text[self._shown :] + text
        self._text, self._shown = "", 0
        return shown

    def _trim(self, shown: int) -> None:
        """Keep only text that a stop string may begin with, and text not shown yet."""
        keep = min(shown, max(0, len(self._text) - self._seen))
        self._text, self._shown = self._text[keep:], shown - keep
