"""Lets pages of other origins read the answers of engines (CORS)."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.domain.request import Headers

EXPOSED = ("x-request-id", *(f"x-enginehouse-{name}" for name in ("backend", "model", "reason", "overhead-us")))
"""The headers of an answer that such pages may read."""


class Cors:
    """Adds the headers that ``origins`` need; ``"*"`` among them means every origin. Without any it adds none."""

    __slots__ = ("_any", "_exposed", "_origins")

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.encode("latin-1", "replace") for origin in origins)
        self._exposed = b"access-control-expose-headers: %s\r\n" % ", ".join(EXPOSED).encode()

    def lines(self, headers: Headers) -> bytes:
        """The header lines for the answer to a request with ``headers``, each ending in CRLF."""
        if not self._origins:
            return b""
        for name, value in headers:
            if name == b"origin":
                return self._exposed + self._allowing(value)
        return b""

    def _allowing(self, origin: bytes) -> bytes:
        if self._any:
            return b"access-control-allow-origin: *\r\n"
        if origin in self._origins:
            return b"access-control-allow-origin: %s\r\nvary: Origin\r\n" % origin
        return b""
