"""The client's side of a request that an engine gets in another protocol."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from enginehouse.domain.errors import PluginFailed, RequestError, UpstreamError
from enginehouse.interfaces.protocols import Envelope, Protocol, Translation
from enginehouse.relay.answers.changing_door import ChangingDoor
from enginehouse.relay.door import Door
from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.events.sse import read_events
from enginehouse.relay.heads.headers import lines_without

_log = logging.getLogger(__name__)

_JSON: Final = b"application/json"
_REPLACED: Final = (b"content-type:", b"content-length:", b"content-encoding:", b"x-enginehouse-protocol:")
_MOST_QUOTED: Final = 500
"""Characters of an engine's error that is no JSON."""
_object = msgspec.json.Decoder(dict[str, Any]).decode


class TranslatingDoor(ChangingDoor):
    """Passes an engine's answer on as ``translation`` makes it.

    Without ``translation``, the request was refused: all that comes is an error.
    """

    __slots__ = ("_protocol", "translation")

    def __init__(self, door: Door, protocol: Protocol, memory: EngineMemory) -> None:
        super().__init__(door, memory)
        self._protocol = protocol
        self.translation: Translation | None = None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        super().start(status, lines, length)
        own = b"x-enginehouse-protocol: %s\r\n" % self._protocol.name.encode()
        self._lines = lines_without(lines, _REPLACED) + own
        if self._streams and self.translation is not None:
            self._door.start(status, self._typed(self.translation.stream_type), None)

    def _whole(self, body: bytes) -> None:
        status, translated = self._translated(body)
        self._deliver(status, self._typed(_JSON), translated)

    def _typed(self, content_type: bytes) -> bytes:
        return b"%scontent-type: %s\r\n" % (self._lines, content_type)

    def _changed(self, chunk: bytes) -> bytes:
        translation = self.translation
        assert translation is not None
        pieces, begin = [], 0
        for event in read_events(chunk):
            try:
                pieces.append(self._event(translation, event.data, chunk[begin : event.end]))
            except Exception as error:
                problem = known(error, self._protocol)
                pieces.append(translation.error_event(problem.status, problem.envelope()))
            begin = event.end
        return b"".join(pieces)

    def _event(self, translation: Translation, data: bytes | None, text: bytes) -> bytes:
        if data is None:  # a comment tells a waiting client its place in the queue
            return text if translation.stream_type.startswith(b"text/event-stream") else b""
        if data == b"[DONE]":
            return translation.end()
        event = _object(data)
        return translation.event(event) if event.get("error") is None else translation.error_event(self._status, event)

    def _translated(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer that is no stream."""
        try:
            if self._dropped:
                raise UpstreamError(f"The engine's answer was dropped before it was translated: {self._dropped}")
            if self._status < 300 and self.translation is not None:
                return self._status, self.translation.answer(_decoded(body))
        except Exception as error:
            problem = known(error, self._protocol)
            return problem.status, self._protocol.error(problem.status, problem.envelope())
        return self._status, self._protocol.error(self._status, _envelope(body))


def known(error: Exception, protocol: Protocol) -> RequestError:
    """The error that clients get instead of ``error``, which is handled now; a fault of ``protocol`` is logged."""
    if isinstance(error, RequestError):
        return error
    _log.exception("The protocol '%s' failed", protocol.name)
    return PluginFailed(f"The protocol '{protocol.name}' failed; the gateway's log has the reason")


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return _object(body)
    except (ValueError, RecursionError):
        raise UpstreamError("The engine's answer is no JSON object") from None


def _envelope(body: bytes) -> Envelope:
    """An error as OpenAI has it, whatever the engine made of it."""
    try:
        answer = _object(body)
    except (ValueError, RecursionError):
        return {"error": {"message": body[:_MOST_QUOTED].decode(errors="replace")}}
    error = answer.get("error")
    if isinstance(error, dict):
        return answer
    message = error or answer.get("message") or answer.get("detail") or "The engine refused the request"
    return {"error": {"message": str(message)}}
