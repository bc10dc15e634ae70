"""One backend, as the relay sees it."""

from __future__ import annotations

from enginehouse.config.schema import Backend, Timeouts
from enginehouse.domain.request import Headers
from enginehouse.relay.headers import request_head
from enginehouse.relay.upstream.pool import Origin, Pool


class Upstream:
    """A backend's address, its key, its time limits and its connections.

    One without a ``url`` is nowhere, and cannot be reached, until it is located.
    """

    def __init__(self, name: str, settings: Backend, timeouts: Timeouts) -> None:
        self.name = name
        self.timeouts = settings.timeouts or timeouts
        self.pool = Pool(Origin.parse(settings.url), verify_tls=settings.verify_tls)
        self._verify_tls = settings.verify_tls
        self._api_key = settings.api_key
        self._pass_authorization = settings.pass_authorization and not settings.api_key
        self._fixed: dict[str, bytes] = {}

    def locate(self, url: str) -> None:
        """The engine listens at ``url`` from now on, or nowhere if that is empty."""
        self.pool.close()
        self.pool = Pool(Origin.parse(url), verify_tls=self._verify_tls)
        self._fixed.clear()

    def fixed(self, method: str, path: str) -> bytes:
        """The request line and the lines that are the same for every request."""
        origin = self.pool.origin
        key = f"authorization: Bearer {self._api_key}\r\n" if self._api_key else ""
        return f"{method} {origin.prefix}{path} HTTP/1.1\r\nhost: {origin.authority}\r\n{key}".encode("latin-1")

    def post(self, path: str, headers: Headers, request_id: bytes, body: bytes) -> bytes:
        """A whole ``POST`` on behalf of a client."""
        fixed = self._fixed.get(path)
        if fixed is None:
            fixed = self._fixed[path] = self.fixed("POST", path)
        return request_head(fixed, headers, request_id, len(body), authorization=self._pass_authorization) + body
