"""The client's side of one request to a virtual gateway."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from enginehouse.relay.door import Door


class VirtualClient(ABC):
    """Learns what happens to a request, as its client would."""

    @abstractmethod
    def answered(self) -> None:
        """The first piece of the answer has come."""

    @abstractmethod
    def ended(self, status: int, code: str) -> None:
        """The answer has ended. ``code``: of the error that ends it; empty if it is whole."""


class VirtualDoor(Door):
    """Brings the answer to a ``VirtualClient``."""

    def __init__(self, client: VirtualClient) -> None:
        self._client = client
        self._status = 0
        self._is_stream = self._answered = False

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._status = status
        self._is_stream = length is None

    def write(self, chunk: bytes) -> None:
        if not self._answered and not chunk.startswith(b":"):  # a comment is no part of the answer, but a heartbeat
            self._answered = True
            self._client.answered()

    def finish(self, chunk: bytes) -> None:
        if self._status >= 400:
            self._client.ended(self._status, _error_code(chunk))
            return
        self.write(chunk)
        whole = not self._is_stream or not chunk or b"[DONE]" in chunk
        self._client.ended(self._status, "" if whole else _error_code(chunk.partition(b"data:")[2]))

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        self._client.ended(self._status, "upstream_error")


class _ErrorFields(msgspec.Struct):
    code: str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _ErrorFields = msgspec.field(default_factory=_ErrorFields)


def _error_code(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_ErrorAnswer).error.code or "upstream_error"
    except msgspec.MsgspecError:
        return "upstream_error"
