"""The part that a client has of a stream whose events have types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from enginehouse import Candidate, RequestError
from enginehouse.continuers import AnswerDiffers, MemoryShare, read_events, replace_model
from enginehouse.drivers import StreamTraits, SupportsContinuation
from enginehouse.runtime import PluginId, log_plugin_failure
from enginehouse_continuation.progress import ABSENT, AnswerPiece, ChunkChoice, StreamChunk
from enginehouse_continuation.stream_history import StreamHistory
from enginehouse_kit.protocols import ChatPiece, Protocol, TypedAnswer

_SAYS_NO = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What a ``TypedAnswer`` raises for an event that it does not know."""
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def typed_answer(protocol: Protocol, path: str) -> TypedAnswer | None:
    """As ``Protocol.typed_answer``; ``None`` also if the protocol fails."""
    try:
        return protocol.typed_answer(path)
    except Exception as error:
        _note_failure(protocol, error)
        return None


def _note_failure(plugin: TypedAnswer | Protocol, error: Exception) -> None:
    """Log that a plugin has failed. Its stream is not continued."""
    kind = type(plugin)
    log_plugin_failure(PluginId("protocol", f"{kind.__module__}.{kind.__qualname__}"), "failed", error)


class TypedHistory(StreamHistory):
    """Keeps the events of a stream that another engine continues as a chat; ``answer`` reads and writes them.

    ``as_chat`` makes the body of that chat of the client's own. It is called when the stream is read, which most
    streams never are, and raises ``RequestError`` for what no chat can say. Only the end tells why, and the usage.
    """

    def __init__(
        self,
        answer: TypedAnswer,
        body: bytes,
        traits: StreamTraits,
        as_chat: Callable[[bytes], bytes],
        share: MemoryShare,
    ) -> None:
        super().__init__("/v1/chat/completions", body, traits, share, added=False)
        self.progress.ends = None  # an event may have several tokens, whatever the engine's chats are like
        self._asked = body
        self._as_chat = as_chat
        self._answer = answer
        self._reason = ""
        self._stopped_at: str | None = None
        self._told: Mapping[str, Any] = {}

    def _prepare(self) -> None:
        try:
            self.body = self._as_chat(self.body)
        except RequestError as error:
            self.body = b"{}"
            self.discard(f"no chat can continue it: {error.message}")

    def read(self) -> None:
        if self._fields is None and not self.why:
            self._fields = self.fields  # finds out whether a chat can say it
        super().read()

    @property
    def is_unanswered(self) -> bool:
        """Whether the client has no event, so that the answer may become any other one."""
        self.read()
        return not (self._answer.is_begun or self.why)

    def begin_anew(self, driver: SupportsContinuation, candidate: Candidate) -> bytes:
        self.traits = driver.streams
        return replace_model(self._asked, candidate.name_there or candidate.model)

    @property
    def wants_usage(self) -> bool:
        return True

    def write_piece(self, piece: AnswerPiece) -> bytes:
        if piece.finish is not None:
            self._reason = piece.finish
            found = None if piece.stop_reason == ABSENT else msgspec.json.decode(piece.stop_reason)
            self._stopped_at = found if isinstance(found, str) else None
        self._told = piece.usage or self._told
        return self._written(self._answer.text, piece.text) if piece.text else b""

    def write_usage(self, usage: Mapping[str, Any]) -> bytes:
        self._told = usage
        return b""

    def write_choices(self, choices: msgspec.Raw) -> bytes:
        raise AnswerDiffers

    def write_end(self, text: str | None) -> bytes:
        return self._written(self._answer.end, text, self._reason, self._stopped_at, self._told)

    def _written(self, write: Callable[..., bytes | None], *said: object) -> bytes:
        try:
            events = write(*said)
        except Exception as error:
            _note_failure(self._answer, error)
            raise AnswerDiffers from None
        if not isinstance(events, bytes):
            raise AnswerDiffers
        return events

    def _read(self, piece: bytes) -> None:
        for event in read_events(piece):
            if event.data is None or self.why:
                continue
            try:
                said = self._answer.read(_object(event.data))
            except Exception as error:
                if not isinstance(error, _SAYS_NO):
                    _note_failure(self._answer, error)
                raise ValueError(str(error)) from None
            if self._answer.is_begun and self.common is None:
                self.common = {}
            if said is None:
                self.ended = True
            elif said.other:
                self._answered = True
                self.discard(f"its answer has {said.other}")
            else:
                self._add(_chunk(said))

    def _ending(self) -> bytes | None:
        if self._full() is None:
            if self.finish is None:
                return None
            self.write_piece(AnswerPiece(finish=self.finish))
        made, prompt = self.progress.tokens(), self.prompt_tokens
        made = self.progress.events if made is None else made  # each event has one token at least
        self.write_usage(self.usage_of_whole({}, prompt or 0, made))
        try:
            return self.write_end(self.progress.text)
        except AnswerDiffers:
            return None


def _chunk(said: ChatPiece) -> StreamChunk:
    usage = None if said.usage is None else dict(said.usage)
    choices = [ChunkChoice(text=said.text, finish_reason=said.finish)] if said.text or said.finish else []
    return StreamChunk(choices=choices, usage=usage)
