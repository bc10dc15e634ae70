"""Reads ``Retry-After`` in the head of an engine's answer."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import Final

SAID_WITH: Final = frozenset({429, 503})
"""The answers with which an engine asks to be left alone."""
_LONGEST_S: Final = 3600.0
_LINE: Final = re.compile(rb"^retry-after:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


def retry_after(lines: bytes, epoch: float) -> float:
    """For how many seconds the engine wants to be left alone, one hour at most; 0 if ``lines`` do not say.

    ``epoch``: the time of day, for engines that name a date.
    """
    found = _LINE.search(lines)
    if found is None:
        return 0.0
    text = found[1].decode("latin-1").strip()
    seconds = float(text) if text.isascii() and text.isdigit() else _until(text, epoch)
    return min(max(seconds, 0.0), _LONGEST_S)


def _until(text: str, epoch: float) -> float:
    try:
        return parsedate_to_datetime(text).timestamp() - epoch
    except (ValueError, OverflowError):
        return 0.0
