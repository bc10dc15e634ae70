"""Writes events in the form of the stream that a client reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from enginehouse.relay.continuation.chunks import ABSENT

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.encode


class EventWriter(ABC):
    """Writes the rest of a stream, of which another engine has written the first part."""

    __slots__ = ()

    @abstractmethod
    def text(
        self,
        text: str,
        ids: Sequence[int] | None = None,
        finish: str | None = None,
        stop_reason: msgspec.Raw = ABSENT,
        usage: Mapping[str, Any] | None = None,
    ) -> bytes:
        """A piece of the answer; the last one has the ``finish`` reason. ``ids``: only for clients that want them."""

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

    def text(
        self,
        text: str,
        ids: Sequence[int] | None = None,
        finish: str | None = None,
        stop_reason: msgspec.Raw = ABSENT,
        usage: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            choice["delta"] = {"content": text} if text or finish is None else {}
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": finish}
        if finish is not None and stop_reason != ABSENT:
            choice["stop_reason"] = stop_reason
        if ids is not None:
            choice["token_ids"] = ids
        return self._event({"choices": [choice]} if usage is None else {"choices": [choice], "usage": usage})

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        return self._event({"choices": [], "usage": usage})

    def choices(self, choices: msgspec.Raw) -> bytes:
        return self._event({"choices": choices})

    def done(self, text: str | None) -> bytes:
        return DONE

    def _event(self, own: Mapping[str, Any]) -> bytes:
        return b"data: " + _encode({**self._common, **own}) + b"\n\n"
