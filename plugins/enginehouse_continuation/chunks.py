"""The events of chats and completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from enginehouse.continuers import read_events

ABSENT = msgspec.Raw()
"""The value of a field that is not there."""


DONE = b"data: [DONE]\n\n"


class ChunkDelta(msgspec.Struct):
    """The addition to a message. The fields after ``content`` are read only to see that they are there."""

    role: str | None = None
    content: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    audio: Any = None
    refusal: str | None = None

    @property
    def other(self) -> str:
        """Its additions other than text, in words; empty for none."""
        if self.tool_calls or self.function_call:
            return "a tool call"
        if self.reasoning_content or self.reasoning:
            return "reasoning"
        return "audio" if self.audio else "a refusal" if self.refusal else ""


class _ScoredToken(msgspec.Struct):
    id: int | None = None


class _Scores(msgspec.Struct):
    content: list[_ScoredToken] | None = None


class ChunkChoice(msgspec.Struct):
    """A piece of one answer, of a chat or a completion."""

    index: int = 0
    text: str | None = None
    delta: ChunkDelta | None = None
    finish_reason: str | None = None
    stop_reason: msgspec.Raw = ABSENT
    token_ids: list[int] | None = None
    prompt_token_ids: msgspec.Raw = ABSENT
    logprobs: _Scores | None = None

    @property
    def shown(self) -> str:
        """The text."""
        return self.text or (self.delta.content if self.delta is not None else "") or ""

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing of an answer, but perhaps a role."""
        has_other = self.delta is not None and self.delta.other
        return not (self.shown or self.finish_reason or has_other or self.token_ids or self.logprobs)

    @property
    def ids(self) -> list[int] | None:
        """The tokens, from ``token_ids`` as vLLM sends them, or the ids that llama.cpp adds to ``logprobs``."""
        if self.token_ids is not None or self.logprobs is None or self.logprobs.content is None:
            return self.token_ids
        ids = [token.id for token in self.logprobs.content if token.id is not None]
        return ids if len(ids) == len(self.logprobs.content) else None


class StreamChunk(msgspec.Struct):
    """One event of a chat or a completion."""

    choices: list[ChunkChoice] = []
    usage: dict[str, Any] | None = None
    prompt_token_ids: msgspec.Raw = ABSENT


class AnswerPiece(NamedTuple):
    """A piece to write; the last one has the ``finish`` reason. ``ids``: only for clients that want them."""

    text: str = ""
    ids: Sequence[int] | None = None
    finish: str | None = None
    stop_reason: msgspec.Raw = ABSENT
    usage: Mapping[str, Any] | None = None


_decode = msgspec.json.Decoder(StreamChunk).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_OF_ONE_CHUNK = ("choices", "usage", "prompt_token_ids")


def read_chunks(piece: bytes) -> Iterator[tuple[StreamChunk | None, bytes]]:
    """The chunks of ``piece`` with their JSON, and ``None`` for ``[DONE]``.

    Raises ``ValueError`` for an event that is no chunk.
    """
    usual = piece[:8] == b'data: {"' and piece[-3:] == b"}\n\n" and piece.find(b"\n") == len(piece) - 2
    if usual:  # one event, as nearly every piece is
        only = piece[6:-2]
        yield _decode(only), only
        return
    for event in read_events(piece):
        if (data := event.data) is not None:
            yield (None if data.strip() == b"[DONE]" else _decode(data)), data


def common_fields(data: bytes) -> dict[str, msgspec.Raw]:
    """The fields that all chunks of the answer share, from the JSON of its first one: the id, the time, the model."""
    return {name: value.copy() for name, value in _fields(data).items() if name not in _OF_ONE_CHUNK}


def choices_of(data: bytes) -> msgspec.Raw:
    """The choices of a chunk, as its engine wrote them."""
    return _fields(data)["choices"]
