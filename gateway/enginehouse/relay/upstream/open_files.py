"""Tells a shortage of file descriptors, which is the gateway's own, from an engine that cannot be reached."""

from __future__ import annotations

import errno
import logging
from time import monotonic
from typing import ClassVar

from enginehouse.domain.errors import Overloaded

_log = logging.getLogger("enginehouse.relay")

_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_WARN_EVERY_S = 60.0


class _Warned:
    """When the last warning was logged, on the clock of ``monotonic``."""

    at: ClassVar[float] = -_WARN_EVERY_S


def shortage_of_files(error: BaseException) -> Overloaded | None:
    """The answer to a request for which no connection could be opened; ``None`` if ``error`` has another cause.

    The log names the shortage once a minute.
    """
    if not isinstance(error, OSError) or error.errno not in _NO_FILES:
        return None
    if monotonic() - _Warned.at >= _WARN_EVERY_S:
        _Warned.at = monotonic()
        _log.warning("The gateway can open no more connections: %s. Raise its limit (ulimit -n)", error.strerror)
    return Overloaded(f"The gateway can open no more connections ({error.strerror}): raise its limit of open files")
