"""The events of a stream that its client has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from enginehouse.continuers import KeptStream, MemoryShare, PieceMeter, cutter, is_whole
from enginehouse.drivers import StreamTraits
from enginehouse_continuation.chunks import ABSENT, StreamChunk, common_fields, read_chunks
from enginehouse_continuation.progress import AnswerProgress
from enginehouse_continuation.restrictions import number

_MOST_UNREAD: Final = 64 * 1024
"""In bytes: about 300 events, which are read in less than 1 ms. Most streams end before, and are never read."""

MOST_KEPT: Final = 16 << 20
"""In bytes: of one stream, which are 200,000 tokens with their ids and places."""

_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


class KeptEvents(KeptStream):
    """Keeps the events of a stream by reference, and reads them when they are many or when they are needed.

    - ``path`` and ``body``: the client's request, as drivers know it.
    - ``why``: why the stream can neither be continued nor asked again; empty if it can.
    - ``roles``: the choices of whose chat the client knows the role.
    - ``finish``: the finish reason, once it has passed.
    - ``traits``: of the engine that answers now.

    What is kept of the events that are read is counted in ``share``.
    """

    common: dict[str, msgspec.Raw] | None = None
    why: str = ""
    finish: str | None = None
    ended: bool = False
    most: int = _MOST_UNREAD
    meter: PieceMeter | None = None
    pieces: list[bytes]
    cut: Callable[[bytes], bytes] | None
    _answered: bool = False
    _size: int = 0
    _counted: int = 0
    _fields: dict[str, Any] | None = None
    _usage: dict[str, Any] | None = None

    def __init__(self, path: str, body: bytes, traits: StreamTraits, share: MemoryShare, *, added: bool) -> None:
        self.path = path
        self.body = body
        self.traits = traits
        self.progress = AnswerProgress(ends=[] if traits.token_by_token else None)
        self.roles: frozenset[int] = frozenset()
        self.pieces = []
        self.cut = cutter(traits.added) if added else None
        self._share = share

    @property
    def fields(self) -> dict[str, Any]:
        """The client's request, decoded."""
        if self._fields is None:
            self._prepare()
            try:
                self._fields = _object(self.body)
            except (ValueError, RecursionError):  # routing has read only the fields that it needs
                self._fields = {}
                self.discard("its request cannot be read")
            self.progress.shows_ids = self._fields.get("return_token_ids") is True
        return self._fields

    def _prepare(self) -> None:
        """Make ``body`` one that drivers know."""

    def take(self, piece: bytes) -> bytes:
        self.pieces.append(piece)
        self._size += len(piece)
        if self._size > _MOST_UNREAD:
            if len(piece) > _MOST_UNREAD and not is_whole(piece):  # only a piece of a very large event has no end
                self.discard("one of its events is too large")
                return piece
            self.read()
        return self.cut(piece) if self.cut is not None else piece

    def count(self) -> None:
        if self.meter is not None:
            self.meter.pieces.extend(self.pieces[self._counted :])
            self.meter.read()
        self._counted = len(self.pieces)

    def read(self) -> None:
        for piece in self._take_unread():
            self.note(piece)
        self.count_kept()

    def note(self, piece: bytes) -> None:
        """Read whole events."""
        if self.why:
            return
        try:
            self._read(piece)
        except (ValueError, RecursionError):
            self.discard("an event of its engine cannot be understood")

    def count_kept(self) -> None:
        """Count what is kept, and stop keeping it if it is too much."""
        size = self.progress.size
        if not self.why and (why := self._share.take(size - self._share.size)):
            self.discard("its answer is too long to be kept" if size > MOST_KEPT else why)

    def release(self) -> None:
        self._share.give_back()

    def discard(self, why: str) -> None:
        """Stop keeping events, because the stream cannot be continued."""
        self.why = why
        self._share.give_back()
        self._take_unread()
        self.progress = AnswerProgress()

    def _take_unread(self) -> list[bytes]:
        """Count the unread pieces, and keep them no longer. A fast path has the list too, so it stays the same one."""
        self.count()
        pieces = self.pieces.copy()
        self.pieces.clear()
        self._size = self._counted = 0
        return pieces

    def _read(self, piece: bytes) -> None:
        for chunk, data in read_chunks(piece):
            if chunk is None:
                self.ended = True
                continue
            if self.common is None:
                self._begin(data)
            self._add(chunk)

    def _begin(self, data: bytes) -> None:
        fields = self.fields  # also tells the progress whether ids are shown
        self.common = common_fields(data)
        if isinstance(prompt := fields.get("prompt"), list) and prompt and isinstance(prompt[0], int):
            self.progress.prompt_ids = msgspec.json.encode(prompt)

    def _add(self, chunk: StreamChunk) -> None:
        progress = self.progress
        if chunk.usage is not None:
            self._usage = chunk.usage
            progress.prompt_tokens = number(chunk.usage, "prompt_tokens")
            progress.counted = number(chunk.usage, "completion_tokens")
        if chunk.prompt_token_ids is not ABSENT:
            progress.learn_prompt(chunk.prompt_token_ids)
        for choice in chunk.choices:
            if choice.prompt_token_ids is not ABSENT:
                progress.learn_prompt(choice.prompt_token_ids)
            if choice.delta is not None and choice.delta.role is not None:
                self.roles |= {choice.index}
            if choice.is_empty:
                continue
            self._answered = True
            if choice.index:
                self.discard("it has several answers")
                return
            if choice.delta is not None and (other := choice.delta.other):
                self.discard(f"its answer has {other}")
                return
            progress.add(choice.shown, choice.ids)
            self.finish = choice.finish_reason or self.finish
