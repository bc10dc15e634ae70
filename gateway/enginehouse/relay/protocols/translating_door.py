"""The client's side of a request that an engine gets in another protocol."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from enginehouse.domain.errors import PluginFailed, RequestError, UpstreamError
from enginehouse.interfaces.protocols import Envelope, Protocol, Translation
from enginehouse.relay.door import Door
from enginehouse.relay.engine_memory import EngineMemory, EngineShare
from enginehouse.relay.events.sse import read_events

_log = logging.getLogger(__name__)

_JSON: Final = b"application/json"
_REPLACED: Final = (b"content-type:", b"content-length:", b"content-encoding:", b"x-enginehouse-protocol:")
_LARGEST: Final = 64 << 20
"""Bytes of a whole answer, which is translated at once."""
_MOST_QUOTED: Final = 500
"""Characters of an engine's error that is no JSON."""
_object = msgspec.json.Decoder(dict[str, Any]).decode


class TranslatingDoor(Door):
    """Passes an engine's answer to another ``door``, as ``translation`` makes it.

    Without ``translation``, the request was refused: all that comes is an error. ``memory`` has room for an answer that
    is no stream, or the client gets an error in its place.
    """

    __slots__ = (
        "_door",
        "_dropped",
        "_lines",
        "_pieces",
        "_protocol",
        "_share",
        "_status",
        "_streams",
        "translation",
    )

    def __init__(self, door: Door, protocol: Protocol, memory: EngineMemory) -> None:
        self._door = door
        self._protocol = protocol
        self.translation: Translation | None = None
        self._status = 0
        self._lines = b""
        self._streams = False
        self._pieces = bytearray()
        self._share = EngineShare(memory, "answer", _LARGEST)
        self._dropped = ""

    @property
    def address(self) -> str:
        return self._door.address

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        lowered = lines.lower()
        self._status = status
        kept = (line for line in lines.splitlines(keepends=True) if not line.lower().startswith(_REPLACED))
        self._lines = b"%sx-enginehouse-protocol: %s\r\n" % (b"".join(kept), self._protocol.name.encode())
        self._streams = status < 300 and b"content-type: text/event-stream" in lowered
        if self._streams and self.translation is not None:
            self._door.start(status, self._typed(self.translation.stream_type), None)

    def write(self, chunk: bytes) -> None:
        if not self._streams:
            self._hold(chunk)
        elif translated := self._translated(chunk):
            self._door.write(translated)

    def finish(self, chunk: bytes) -> None:
        if self._streams:
            self._door.finish(self._translated(chunk))
            return
        self._hold(chunk)
        status, body = self._whole()
        self.release()
        self._door.start(status, self._typed(_JSON), len(body))
        self._door.finish(body)

    def release(self) -> None:
        """Hold nothing of the answer any more."""
        self._pieces = bytearray()
        self._share.give_back()

    def _hold(self, chunk: bytes) -> None:
        if not self._dropped:
            self._dropped = self._share.take(len(chunk))
            self._pieces += chunk
        if self._dropped:
            self._pieces.clear()

    def unread(self) -> int:
        return self._door.unread()

    def abort(self) -> None:
        self.release()
        self._door.abort()

    def _typed(self, content_type: bytes) -> bytes:
        return b"%scontent-type: %s\r\n" % (self._lines, content_type)

    def _translated(self, chunk: bytes) -> bytes:
        """The client's bytes for whole events of the engine."""
        translation = self.translation
        assert translation is not None
        pieces, begin = [], 0
        for event in read_events(chunk):
            try:
                pieces.append(self._event(translation, event.data, chunk[begin : event.end]))
            except Exception:
                _log.exception("The protocol '%s' failed", self._protocol.name)
                pieces.append(translation.error_event(500, failed(self._protocol).envelope()))
            begin = event.end
        return b"".join(pieces)

    def _event(self, translation: Translation, data: bytes | None, text: bytes) -> bytes:
        if data is None:  # a comment tells a waiting client its place in the queue
            return text if translation.stream_type.startswith(b"text/event-stream") else b""
        if data == b"[DONE]":
            return translation.end()
        event = _object(data)
        return translation.event(event) if event.get("error") is None else translation.error_event(self._status, event)

    def _whole(self) -> tuple[int, bytes]:
        """The status and the body of an answer that is no stream."""
        body = bytes(self._pieces)
        try:
            if self._dropped:
                raise UpstreamError(f"The engine's answer was dropped before it was translated: {self._dropped}")
            if self._status < 300 and self.translation is not None:
                return self._status, self.translation.answer(_decoded(body))
        except RequestError as error:
            return error.status, self._protocol.error(error.status, error.envelope())
        except Exception:
            _log.exception("The protocol '%s' failed", self._protocol.name)
            return 500, self._protocol.error(500, failed(self._protocol).envelope())
        return self._status, self._protocol.error(self._status, _envelope(body))


def failed(protocol: Protocol) -> PluginFailed:
    """The error of a protocol that raised an exception."""
    return PluginFailed(f"The protocol '{protocol.name}' failed; the gateway's log has the reason")


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return _object(body)
    except msgspec.DecodeError:
        raise UpstreamError("The engine's answer is no JSON object") from None


def _envelope(body: bytes) -> Envelope:
    """An error as OpenAI has it, whatever the engine made of it."""
    try:
        answer = _object(body)
    except msgspec.DecodeError:
        return {"error": {"message": body[:_MOST_QUOTED].decode(errors="replace")}}
    error = answer.get("error")
    if isinstance(error, dict):
        return answer
    message = error or answer.get("message") or answer.get("detail") or "The engine refused the request"
    return {"error": {"message": str(message)}}
