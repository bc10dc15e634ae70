"""The request that the event loop works for, so that each line of the log can name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Final, NamedTuple


class LoggedRequest(NamedTuple):
    """The ids of a request in lines of the log. ``trace_id`` is empty if it is not traced."""

    request_id: str
    trace_id: str


class LogContext:
    """The request that one thread works for.

    A variable of ``contextvars`` would stay in the callbacks of kept connections, which serve other requests later.
    """

    __slots__ = ("_owner", "_request_id", "_trace_id")

    def __init__(self) -> None:
        self._request_id = b""
        self._trace_id = b""
        self._owner = 0

    def enter(self, request_id: bytes, trace_id: bytes) -> None:
        """Name this request in the lines of this thread until ``leave``."""
        self._request_id = request_id
        self._trace_id = trace_id
        self._owner = get_ident()

    def leave(self) -> None:
        """Name no request."""
        self._request_id = b""

    @contextmanager
    def named(self, request_id: bytes, trace_id: bytes) -> Iterator[None]:
        """Name this request inside the block, and the previous one after it."""
        before = self._request_id, self._trace_id, self._owner
        self.enter(request_id, trace_id)
        try:
            yield
        finally:
            self._request_id, self._trace_id, self._owner = before

    def request(self, thread: int | None) -> LoggedRequest | None:
        """The request that ``thread`` works for."""
        if not self._request_id or thread != self._owner:
            return None
        return LoggedRequest(self._request_id.decode(), self._trace_id.decode())


log_context: Final = LogContext()
