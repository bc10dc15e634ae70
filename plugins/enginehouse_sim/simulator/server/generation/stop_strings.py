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
        """Take generated ``text``. Return the text to show, and the stop string found, if any.

        Text that may begin a stop string is held back until that is decided, or until the ``last`` text.
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
        """Take generated ``text`` in which stop strings do not apply. Return the text to show."""
        shown = self._text[self._shown :] + text
        self._text, self._shown = "", 0
        return shown

    def _trim(self, shown: int) -> None:
        """Keep only the text that is not shown yet, and the end of the shown text that may begin a stop string."""
        keep = min(shown, max(0, len(self._text) - self._seen))
        self._text, self._shown = self._text[keep:], shown - keep
