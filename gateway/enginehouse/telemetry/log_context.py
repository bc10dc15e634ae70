"""The request that the event loop works for, so that each line of the log can name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Final, NamedTuple, Protocol


class Logged(Protocol):
    """A request that lines of the log name. ``trace_id`` is empty if it is not traced."""

    @property
    def request_id(self) -> bytes: ...

    @property
    def trace_id(self) -> bytes: ...


class LoggedIds(NamedTuple):
    """A request that has ended."""

    request_id: bytes
    trace_id: bytes


class LogContext:
    """The ``request`` that one ``thread`` works for.

    A variable of ``contextvars`` would stay in the callbacks of kept connections, which serve other requests later.
    """

    __slots__ = ("request", "thread")

    def __init__(self) -> None:
        self.request: Logged | None = None
        self.thread = 0

    @contextmanager
    def named(self, request: Logged) -> Iterator[None]:
        """Name ``request`` in lines of this thread inside the block, and the previous one after it."""
        before = self.request, self.thread
        self.request, self.thread = request, get_ident()
        try:
            yield
        finally:
            self.request, self.thread = before

    def ids(self, thread: int | None) -> dict[str, str]:
        """The ids, by their names, of the request that ``thread`` works for; empty for none."""
        if self.request is None or thread != self.thread:
            return {}
        ids = {"request_id": self.request.request_id.decode(), "trace_id": self.request.trace_id.decode()}
        return {name: id for name, id in ids.items() if id}


log_context: Final = LogContext()
