"""Passes on the answer to a request that is asked anew, because its client has only the beginning of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from enginehouse.domain.continuation import Continuation
from enginehouse.relay.continuation.chunk_writer import DONE
from enginehouse.relay.continuation.chunks import read_chunks
from enginehouse.relay.continuation.stream_history import StreamHistory
from enginehouse.relay.continuation.translator import Translator

_fields = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.encode
_EMPTY: tuple[object, ...] = ("", None, [])


class AnswerAnew(Translator):
    """Translates the answer to ``continuation``, the whole request, for a client that knows only the roles of it.

    The chunks keep the id that the client knows, and tell no role twice. Nothing is compared, so the answer may be of
    any kind.
    """

    __slots__ = ("_history", "_known_roles")

    def __init__(self, history: StreamHistory, continuation: Continuation) -> None:
        super().__init__(continuation)
        self._history = history
        self._known_roles = frozenset(history.roles)

    def translate(self, piece: bytes) -> Iterator[bytes]:
        history = self._history
        history.note(piece)
        for chunk, data in read_chunks(piece if history.cut is None else history.cut(piece)):
            yield DONE if chunk is None else self._event(_fields(data))
            self.has_begun = self.has_begun or chunk is None

    def _event(self, fields: dict[str, Any]) -> bytes:
        """The chunk for the client; empty for one that has nothing new."""
        had_choices = bool(fields.get("choices"))
        fields["choices"] = [choice for choice in fields.get("choices") or () if self._is_new(choice)]
        if had_choices and not fields["choices"] and not fields.get("usage"):
            return b""
        self.has_begun = True
        return b"data: " + _encode({**fields, **(self._history.common or {})}) + b"\n\n"

    def _is_new(self, choice: dict[str, Any]) -> bool:
        """Whether ``choice`` is more than a role that the client knows, which is removed from it."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return True
        if choice.get("index", 0) in self._known_roles:
            delta.pop("role", None)
        return choice.get("finish_reason") is not None or any(value not in _EMPTY for value in delta.values())
