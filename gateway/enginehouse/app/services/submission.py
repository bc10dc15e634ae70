"""A request that the gateway makes itself, for a service."""

from __future__ import annotations

import asyncio

from enginehouse.domain.errors import BodyTooLarge, NotFound, UpstreamError
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.http.admission import Admission
from enginehouse.interfaces.authenticators import AdmittedCaller, Reserved
from enginehouse.interfaces.services import Submitted
from enginehouse.relay.response_writer import ResponseWriter

_LARGEST = 64 << 20
"""Bytes of an answer."""
_JSON: Headers = [(b"content-type", b"application/json")]


async def submit(
    admission: Admission, path: str, body: bytes, headers: Headers | None, caller: AdmittedCaller | None = None
) -> Submitted:
    """Send a request through the relay and wait for its whole answer.

    Raises ``NotFound`` for a path that is not relayed, ``ShuttingDown`` if no more requests are accepted, and
    ``UpstreamError`` for an answer that broke off or is too large.
    """
    if path.encode() not in admission.hot_paths:
        raise NotFound(f"No engine is asked at '{path}'")
    admission.relay.check_open()
    answer = _SubmittedAnswer()
    exchange = admission.relay.open(answer, path, headers or _JSON)
    exchange.begin(body, caller)
    try:
        return await answer.whole
    finally:
        if not answer.ended:
            exchange.client_disconnected()


class ServedCaller(AdmittedCaller):
    """``caller``, for whom a service sends requests. They have this ``priority`` and may wait."""

    def __init__(self, caller: AdmittedCaller, priority: int, *, aside: bool) -> None:
        super().__init__(caller.name, caller.models, priority=priority, weight=caller.weight)
        self.aside = aside
        self._caller = caller

    def admit(self, requirements: Requirements, answer_limit: int | None) -> Reserved | None:
        return self._caller.admit(requirements, answer_limit)


class _SubmittedAnswer(ResponseWriter):
    """Collects an answer. ``ended``: nothing more will come."""

    def __init__(self) -> None:
        self.whole: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self.ended = False
        self._status = 0
        self._body = bytearray()

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._status = status

    def write(self, chunk: bytes) -> None:
        self._body += chunk
        if len(self._body) > _LARGEST and not self.whole.done():
            self.whole.set_exception(BodyTooLarge(f"The answer is larger than {_LARGEST} bytes"))

    def finish(self, chunk: bytes) -> None:
        self.write(chunk)
        self.ended = True
        if not self.whole.done():
            self.whole.set_result(Submitted(self._status, bytes(self._body)))

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        self.ended = True
        if not self.whole.done():
            self.whole.set_exception(UpstreamError("The answer broke off"))
