"""The last requests received, for tests."""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from enginehouse_sim.simulator.server.http.call import Call

_MOST_REQUESTS = 5000
_MOST_BYTES = 64 * 1024 * 1024


class LoggedRequest:
    """A request, byte for byte, and its outcome.

    ``status`` is ``running``, ``done``, or ``aborted`` for an incomplete answer; ``fault`` is the kind of the fault
    that hit it.
    """

    __slots__ = ("body", "fault", "headers", "status", "target")

    def __init__(self, call: Call) -> None:
        self.target = call.target
        self.headers = call.headers
        self.body = call.body
        self.status = "running"
        self.fault: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The request for ``GET /sim/requests``: ``body`` as text, or ``body_base64`` if it is not UTF-8."""
        try:
            body = {"body": self.body.decode()}
        except UnicodeDecodeError:
            body = {"body_base64": b64encode(self.body).decode()}
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers]
        return {"path": self.target, "headers": headers, "status": self.status, "fault": self.fault, **body}


class RequestLog:
    """Requests in order of arrival, limited in number and in bytes."""

    def __init__(self) -> None:
        self._requests: deque[LoggedRequest] = deque()
        self._bytes = 0

    @contextmanager
    def record(self, call: Call) -> Iterator[LoggedRequest]:
        """Log ``call``, and its outcome when the block is left."""
        logged = LoggedRequest(call)
        self._requests.append(logged)
        self._bytes += len(logged.body)
        while len(self._requests) > _MOST_REQUESTS or (self._bytes > _MOST_BYTES and len(self._requests) > 1):
            self._bytes -= len(self._requests.popleft().body)
        try:
            yield logged
        except BaseException:
            logged.status = "aborted"
            raise
        logged.status = "done"

    def clear(self) -> None:
        self._requests.clear()
        self._bytes = 0

    def listing(self) -> list[dict[str, Any]]:
        """All requests, oldest first."""
        return [request.as_json() for request in self._requests]
