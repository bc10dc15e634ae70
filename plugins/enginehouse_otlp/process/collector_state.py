"""Logs when the collector goes away, and when it is back."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)
_LONGEST = 300
_LOGGERS = ("opentelemetry", "urllib3")
_OF_CLIENTS = "opentelemetry.trace"
"""Its loggers tell what is wrong with a client's ``tracestate``, which is no reason of a failure."""


class LastWords(logging.Handler):
    """Keeps the first line that OpenTelemetry's exporters log since the last ``take``, instead of printing all."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(_OF_CLIENTS):
            self._text = self._text or record.getMessage()

    def listen(self) -> None:
        """Take the place of all handlers of the exporters' loggers."""
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [self], False

    def take(self) -> str:
        """The reason of the last failure, if one was logged."""
        text, self._text = self._text, ""
        return text[:_LONGEST] or "no reason was given"


class CollectorState:
    """Whether the collector takes ``what``. It logs one line for each change."""

    def __init__(self, what: str, words: LastWords, remedy: str = "") -> None:
        self._what = what
        self._words = words
        self._remedy = remedy
        self._is_away = False

    def note(self, *, taken: bool) -> None:
        """Note whether the last export succeeded."""
        why = self._words.take()
        if taken == (not self._is_away):
            return
        self._is_away = not taken
        if taken:
            _log.warning("The collector accepts %s again", self._what)
        else:
            _log.warning("The collector does not accept %s: %s%s", self._what, why, self._remedy)
