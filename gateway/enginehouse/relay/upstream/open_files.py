"""Tells a shortage of file descriptors, which is the gateway's own, from an engine that cannot be reached."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from enginehouse.domain.errors import Overloaded

_log = logging.getLogger("enginehouse.relay")

_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_WARN_EVERY_S = 60.0


class OpenFiles:
    """Recognises failures to connect to one engine that are a shortage of the gateway's own."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._warned_at = -_WARN_EVERY_S

    def shortage(self, error: BaseException) -> Overloaded | None:
        """The answer to a request for which no connection could be opened; ``None`` if ``error`` has another cause.

        The log names the shortage once a minute.
        """
        if not isinstance(error, OSError) or error.errno not in _NO_FILES:
            return None
        now = self._now()
        if now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            _log.warning("The gateway can open no more connections: %s. Raise its limit (ulimit -n)", error.strerror)
        return Overloaded(f"The gateway can open no more connections ({error.strerror}): raise its limit of open files")
