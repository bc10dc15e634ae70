"""Stop strings."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Follows one answer and ends it before the first stop string, however that is spread over tokens."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._hold = max((len(stop) for stop in stops), default=1) - 1
        self._held = ""

    def feed(self, text: str, last: bool) -> tuple[str, bool]:
        """What of the answer can be shown after ``text`` came, and whether a stop string ended it.

        Text that may be the beginning of a stop string is held back until that is known, or the answer is at its end.
        """
        if not self._stops:
            return text, False
        text = self._held + text
        found = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if found >= 0:
            return text[:found], True
        shown = len(text) if last else max(0, len(text) - self._hold)
        self._held = text[shown:]
        return text[:shown], False
