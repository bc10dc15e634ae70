"""An answer in events that have types: what has passed of it, and how it goes on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from enginehouse.relay.continuation.chunk_writer import EventWriter
from enginehouse.relay.continuation.chunks import ABSENT, ChunkChoice, ChunkDelta, StreamChunk
from enginehouse.relay.continuation.progress import AnswerDiffers

NOTHING = StreamChunk()
"""The chunk of an event that has nothing of a chat."""


class TypedAnswer(EventWriter):
    """Reads the events of an engine as chunks of a chat, and writes such events in place of another engine's chunks.

    ``is_begun``: the client has the first event.
    """

    def __init__(self) -> None:
        self.is_begun = False
        self._finish = ""
        self._stopped_at: str | None = None
        self._usage: Mapping[str, Any] = {}

    @abstractmethod
    def read(self, event: dict[str, Any]) -> StreamChunk | None:
        """The chunk that says the same as ``event``; ``None`` for the last one.

        Raises ``ValueError``, ``LookupError`` or ``TypeError`` for an event whose stream cannot be continued.
        """

    @abstractmethod
    def _piece(self, text: str) -> bytes:
        """The events that add ``text``."""

    def text(
        self,
        text: str,
        ids: Sequence[int] | None = None,
        finish: str | None = None,
        stop_reason: msgspec.Raw = ABSENT,
        usage: Mapping[str, Any] | None = None,
    ) -> bytes:
        if finish is not None:
            self._finish = finish
            found = None if stop_reason == ABSENT else msgspec.json.decode(stop_reason)
            self._stopped_at = found if isinstance(found, str) else None
        self._usage = usage or self._usage
        return self._piece(text) if text else b""

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        self._usage = usage  # the end has it
        return b""

    def choices(self, choices: msgspec.Raw) -> bytes:
        raise AnswerDiffers


def said(text: str) -> StreamChunk:
    """The chunk of a text."""
    return StreamChunk(choices=[ChunkChoice(delta=ChunkDelta(content=text))])


def thought() -> StreamChunk:
    """The chunk of reasoning."""
    return StreamChunk(choices=[ChunkChoice(delta=ChunkDelta(reasoning_content=" "))])


def called() -> StreamChunk:
    """The chunk of a tool's call."""
    return StreamChunk(choices=[ChunkChoice(delta=ChunkDelta(tool_calls=[{}]))])


def finished(reason: str, usage: dict[str, Any] | None = None) -> StreamChunk:
    """The chunk that ends a text."""
    return StreamChunk(choices=[ChunkChoice(delta=ChunkDelta(), finish_reason=reason)], usage=usage)


def written(event: Mapping[str, Any]) -> bytes:
    """An event as engines write it."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))
