"""How requests reach one backend."""

from __future__ import annotations

from typing import Final

from enginehouse.config.schema import BackendSettings, TimeoutSettings
from enginehouse.domain.request import Headers
from enginehouse.relay.heads.headers import (
    CREDENTIALS,
    NOT_TO_ENGINE,
    TRACED_NOT_TO_ENGINE,
    passing_lines,
    read_lines,
    with_authorization,
)
from enginehouse.relay.upstream.origin import Origin
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.pool import Pool

_EXPECT_A_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_REACHING = ("url", "driver", "verify_tls", "api_key", "pass_authorization", "pass_caller")


class Upstream:
    """A backend's address, its key, its time limits, its connections and the type of its driver.

    A backend without a ``url`` is ``launched``: it cannot be reached until ``locate`` gives it one. ``clock``: read by
    its requests. ``pass_caller``: it is told whose requests it gets.
    ``most_idle``: as for ``Pool``.
    """

    def __init__(
        self,
        name: str,
        settings: BackendSettings,
        timeouts: TimeoutSettings,
        outside: Outside,
        *,
        most_idle: int | None = None,
    ) -> None:
        self.name = name
        self.driver = settings.driver
        self.timeouts = settings.timeouts or timeouts
        self.outside = outside
        self.clock = outside.clock
        self.launched = not settings.url
        self._verify_tls = settings.verify_tls
        self._most_idle = most_idle
        self.pool = self._pool(settings.url)
        self._settings = settings
        self._api_key = settings.api_key
        self.pass_caller = settings.pass_caller
        passes = settings.pass_authorization and not settings.api_key
        self._withheld = with_authorization(NOT_TO_ENGINE) if passes else NOT_TO_ENGINE
        self._withheld_traced = with_authorization(TRACED_NOT_TO_ENGINE) if passes else TRACED_NOT_TO_ENGINE
        self._fixed: dict[str, bytes] = {}

    def is_for(self, settings: BackendSettings) -> bool:
        """Whether requests reach a backend of these ``settings`` in the same way."""
        return all(getattr(settings, key) == getattr(self._settings, key) for key in _REACHING)

    def locate(self, url: str) -> None:
        """Send requests to ``url`` from now on; if it is empty, the engine does not run."""
        self.pool.close()
        self.pool = self._pool(url)
        self._fixed.clear()

    def _pool(self, url: str) -> Pool:
        return Pool(Origin.parse(url), self.outside, verify_tls=self._verify_tls, most_idle=self._most_idle)

    @property
    def address(self) -> tuple[str, int]:
        """The engine's host and port; the host is empty while it does not run."""
        origin = self.pool.origin
        return origin.host, origin.port

    @property
    def key_line(self) -> bytes:
        """The header line with the engine's own key, if it has one."""
        return f"authorization: Bearer {self._api_key}\r\n".encode("latin-1") if self._api_key else b""

    @property
    def withheld_credentials(self) -> frozenset[bytes]:
        """The client's headers with credentials that the engine must not see."""
        return self._withheld & CREDENTIALS

    def fixed(self, method: str, path: str) -> bytes:
        """The request line and the headers that every request has."""
        origin = self.pool.origin
        return (
            f"{method} {origin.prefix}{path} HTTP/1.1\r\nhost: {origin.authority}\r\n".encode("latin-1") + self.key_line
        )

    def post(
        self,
        path: str,
        headers: Headers,
        request_id: bytes,
        body: bytes,
        trace_lines: bytes = b"",
        caller_lines: bytes = b"",
    ) -> bytes:
        """A whole ``POST`` on behalf of a client. ``trace_lines``: instead of its own, if there are any.

        ``caller_lines``: tell whose request it is.
        """
        fixed = self._fixed.get(path)
        if fixed is None:
            fixed = self._fixed[path] = self.fixed("POST", path)
        lines = passing_lines(headers, self._withheld_traced if trace_lines else self._withheld)
        head = fixed + lines + trace_lines + caller_lines  # mypyc builds what follows without Python's formatting
        return b"%sx-request-id: %s\r\ncontent-length: %d\r\n\r\n%s" % (head, request_id, len(body), body)

    def post_head(self, path: str, headers: Headers, request_id: bytes, length: int | None) -> bytes:
        """The head of a ``POST`` whose body follows: of ``length`` bytes, or in chunks if that is ``None``."""
        framing = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
        lines = passing_lines(headers, self._withheld)
        return b"%s%sx-request-id: %s\r\n%s\r\n\r\n" % (self.fixed("POST", path), lines, request_id, framing)

    def call(self, method: str, target: str, headers: Headers, request_id: bytes, body: bytes) -> bytes:
        """A whole request of any method on behalf of a client, who gets the answer as the engine encodes it.

        ``target`` is a path and perhaps a query, as they stand on the wire.
        """
        lines = passing_lines(headers, self._withheld - {b"accept-encoding"})
        length = b"content-length: %d\r\n" % len(body) if body or method in _EXPECT_A_BODY else b""
        return b"%s%sx-request-id: %s\r\n%s\r\n%s" % (self.fixed(method, target), lines, request_id, length, body)

    def handshake(self, headers: Headers, request_id: bytes) -> list[tuple[str, str]]:
        """The headers of a WebSocket's handshake on behalf of a client, without those of the protocol itself."""
        lines = b"%sx-request-id: %s\r\n%s" % (passing_lines(headers, self._withheld), request_id, self.key_line)
        return [
            (name.decode("ascii"), value.decode("ascii"))
            for name, value in read_lines(lines)
            if not name.startswith(b"sec-websocket-")
            and value.isascii()  # some releases of websockets would send others as UTF-8
        ]
