"""The address of an engine."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec


class Origin(msgspec.Struct, frozen=True):
    """The address of an engine; ``prefix`` is the path before ``/v1``. Without a ``host`` the engine does not run."""

    host: str
    port: int
    tls: bool
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Origin:
        """The origin of ``http://host:port/prefix``."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of a ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address as a URL; empty if the engine does not run."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.prefix}" if host else ""
