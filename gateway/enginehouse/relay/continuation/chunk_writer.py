"""Writes events in the form of the stream that a client reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.protocols import Protocol, TypedAnswer
from enginehouse.relay.continuation.chunks import ABSENT
from enginehouse.relay.continuation.progress import AnswerDiffers
from enginehouse.telemetry.plugin_failures import log_plugin_failure

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.encode


class AnswerPiece(NamedTuple):
    """A piece of an answer; the last one has the ``finish`` reason. ``ids``: only for clients that want them."""

    text: str = ""
    ids: Sequence[int] | None = None
    finish: str | None = None
    stop_reason: msgspec.Raw = ABSENT
    usage: Mapping[str, Any] | None = None


class EventWriter(ABC):
    """Writes the rest of a stream, of which another engine has written the first part."""

    __slots__ = ()

    @abstractmethod
    def piece(self, piece: AnswerPiece) -> bytes:
        """The events that add ``piece``."""

    @abstractmethod
    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """What tells the usage alone."""

    @abstractmethod
    def choices(self, choices: msgspec.Raw) -> bytes:
        """An event with choices as another engine wrote them. Raises ``AnswerDiffers`` where there is no such event."""

    @abstractmethod
    def done(self, text: str | None) -> bytes:
        """The end of the stream. ``text``: all that it says; ``None`` if that was too long to be kept.

        Raises ``AnswerDiffers`` if the end has to repeat a text that is not kept.
        """


class ChunkWriter(EventWriter):
    """Writes chunks with the ``common`` fields of a stream's first half: one id, one time, one model."""

    __slots__ = ("_chat", "_common")

    def __init__(self, common: Mapping[str, msgspec.Raw], *, chat: bool) -> None:
        self._common = common
        self._chat = chat

    def piece(self, piece: AnswerPiece) -> bytes:
        text, finish = piece.text, piece.finish
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            choice["delta"] = {"content": text} if text or finish is None else {}
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": finish}
        if finish is not None and piece.stop_reason != ABSENT:
            choice["stop_reason"] = piece.stop_reason
        if piece.ids is not None:
            choice["token_ids"] = piece.ids
        return self._event(
            {"choices": [choice]} if piece.usage is None else {"choices": [choice], "usage": piece.usage}
        )

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        return self._event({"choices": [], "usage": usage})

    def choices(self, choices: msgspec.Raw) -> bytes:
        return self._event({"choices": choices})

    def done(self, text: str | None) -> bytes:
        return DONE

    def _event(self, own: Mapping[str, Any]) -> bytes:
        return b"data: " + _encode({**self._common, **own}) + b"\n\n"


class TypedWriter(EventWriter):
    """Writes the rest of ``answer``. Its end tells why, and the usage."""

    __slots__ = ("_answer", "_finish", "_stopped_at", "_usage")

    def __init__(self, answer: TypedAnswer) -> None:
        self._answer = answer
        self._finish = ""
        self._stopped_at: str | None = None
        self._usage: Mapping[str, Any] = {}

    def piece(self, piece: AnswerPiece) -> bytes:
        if piece.finish is not None:
            self._finish = piece.finish
            found = None if piece.stop_reason == ABSENT else msgspec.json.decode(piece.stop_reason)
            self._stopped_at = found if isinstance(found, str) else None
        self._usage = piece.usage or self._usage
        return self._written(lambda: self._answer.text(piece.text)) if piece.text else b""

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        self._usage = usage
        return b""

    def choices(self, choices: msgspec.Raw) -> bytes:
        raise AnswerDiffers

    def done(self, text: str | None) -> bytes:
        return self._written(lambda: self._answer.end(text, self._finish, self._stopped_at, self._usage))

    def _written(self, write: Callable[[], bytes | None]) -> bytes:
        try:
            events = write()
        except Exception as error:
            note_failure(self._answer, error)
            raise AnswerDiffers from None
        if not isinstance(events, bytes):
            raise AnswerDiffers
        return events


def note_failure(plugin: TypedAnswer | Protocol, error: Exception) -> None:
    """Log that a plugin has failed. Its stream is not continued."""
    kind = type(plugin)
    log_plugin_failure(PluginId("protocol", f"{kind.__module__}.{kind.__qualname__}"), "failed", error)
