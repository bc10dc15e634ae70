"""Masks secrets in lines of the log, also in those of plugins and libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"
_SHORTEST = 6
"""In characters. Shorter secrets would also mask ordinary words."""
_SCHEME = r"(?:bearer|basic)"
_VALUE = r"[^\s\"',;]+"
_NAME = r"(?:proxy-)?authorization|x-api-key|api[-_]key"
_CREDENTIALS = re.compile(rf"(?i)(\b(?:{_NAME})\b[\"']?\s*[:=]\s*[\"']?(?:{_SCHEME}\s+)?|\b{_SCHEME}\s+){_VALUE}")


class Redaction:
    """Masks ``secrets``, and every word after ``Bearer`` or ``Authorization:``."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, known))) if known else None

    def apply(self, text: str) -> str:
        """``text`` without secrets."""
        if self._secrets is not None:
            text = self._secrets.sub(MASK, text)
        return _CREDENTIALS.sub(rf"\1{MASK}", text)
