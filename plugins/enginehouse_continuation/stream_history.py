"""The part of a stream that its client has: its events, and how another engine goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from enginehouse import Candidate
from enginehouse.continuers import KeptStream, MemoryShare, PieceMeter, StreamTokens, is_whole, replace_model
from enginehouse.drivers import PartialAnswer, StreamTraits, SupportsContinuation
from enginehouse_continuation.progress import (
    ABSENT,
    DONE,
    AnswerPiece,
    AnswerProgress,
    SavedStream,
    StreamChunk,
    common_fields,
    read_chunks,
)
from enginehouse_continuation.restrictions import (
    has_joined_tokens,
    number,
    undecided_characters,
    why_not,
    why_not_again,
    withheld_characters,
)
from enginehouse_kit.added_fields import cutter

_MOST_UNREAD: Final = 64 * 1024
"""In bytes: about 300 events, which are read in less than 1 ms. Most streams end before, and are never read."""

MOST_KEPT: Final = 16 << 20
"""In bytes: of one stream, which are 200,000 tokens with their ids and places."""

_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


class StreamHistory(KeptStream):
    """Keeps the events of a stream by reference, and reads them when they are many or when they are needed.

    It knows whether another engine may go on with the stream, and what that is asked for.

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
        self.chat = path == "/v1/chat/completions"
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
        if self.pieces:
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
            text, other = choice.shown, choice.delta.other if choice.delta is not None else ""
            if not (text or other or choice.finish_reason or choice.token_ids or choice.logprobs):
                continue  # perhaps a role
            self._answered = True
            if choice.index:
                self.discard("it has several answers")
                return
            if other:
                self.discard(f"its answer has {other}")
                return
            progress.add(text, choice.ids)
            self.finish = choice.finish_reason or self.finish

    # --- whether another engine may go on with the stream

    @property
    def is_unanswered(self) -> bool:
        """Whether the client has nothing of the answer but roles, so that it may become any other one."""
        self.read()
        return not (self._answered or self.why)

    def why_not_continuable(self) -> str:
        """Why the stream cannot be continued; empty if it can."""
        self.read()
        return self.why or why_not(self.fields)

    def why_not_movable(self) -> str:
        why = self.why_not_continuable()
        return why or ("it is about to end" if self.finish is not None or self.ended else "")

    def why_not_anew(self) -> str:
        """Why the request cannot be asked again, so that the client's text is skipped; empty if it can."""
        self.read()
        return self.why or why_not_again(self.fields)

    def may_go_on(self) -> bool:
        return self.is_unanswered or not (self.why_not_continuable() and self.why_not_anew())

    # --- in another process

    def saved(self, candidate: Candidate) -> bytes | None:
        if self.common is None:
            return None
        saved = SavedStream(
            backend=candidate.backend,
            model=candidate.model,
            body=self.body,
            common={name: bytes(value) for name, value in self.common.items()},
            roles=set(self.roles),
            usage=self._usage,
            progress=self.progress,
        )
        return msgspec.msgpack.encode(saved)

    def restore(self, saved: SavedStream) -> None:
        """Go on from what another process has saved."""
        self.common = {name: msgspec.Raw(value) for name, value in saved.common.items()}
        self.roles = frozenset(saved.roles)
        self._answered = True
        self._usage = saved.usage
        self.progress = saved.progress
        self.count_kept()

    # --- what the client asked for

    @property
    def wants_usage(self) -> bool:
        """Whether the client wants the usage as the last event."""
        return self._stream_option("include_usage")

    @property
    def wants_usage_always(self) -> bool:
        """Whether the client wants the usage so far in every event."""
        return self.wants_usage and self._stream_option("continuous_usage_stats")

    def _stream_option(self, name: str) -> bool:
        options = self.fields.get("stream_options")
        return isinstance(options, dict) and options.get(name) is True

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of the whole answer; ``None`` if only the context limits it."""
        if self.chat:
            return number(self.fields, "max_completion_tokens", "max_tokens")
        wanted = number(self.fields, "max_tokens")
        return self.traits.default_max_tokens if wanted is None else wanted

    def tokens(self) -> StreamTokens:
        self.read()
        return StreamTokens(self.prompt_tokens, None if self.why else self.progress.tokens(), self.max_tokens)

    # --- what another engine is asked for

    def body_for(self, candidate: Candidate) -> bytes:
        """The client's request, with the name that the engine of ``candidate`` has for the model."""
        name = candidate.name_there or candidate.model
        return self.body if self.fields.get("model") == name else replace_model(self.body, name)

    def begin_anew(self, driver: SupportsContinuation, candidate: Candidate) -> bytes:
        """The request for another engine, while the stream is unanswered."""
        body = self.body_for(candidate)
        asked = driver.continuable(self.path, body)
        self.traits = driver.streams
        self.progress.ends = [] if driver.streams.token_by_token else None
        self.cut = cutter(driver.streams.added) if asked is not body else None
        return asked

    def partial(self, body: bytes) -> PartialAnswer:
        """The ``PartialAnswer`` for a driver. ``body``: the request as the continuing engine would get it."""
        progress, text = self.progress, self.progress.text
        prompt_ids = None if progress.prompt_ids is None else msgspec.Raw(progress.prompt_ids)
        if progress.ids is None:
            return PartialAnswer(
                path=self.path,
                body=body,
                text=text,
                tokens=0 if not text else progress.counted,
                events=progress.events,
                pieces=self._pieces(),
                prompt_ids=None if progress.base else prompt_ids,
            )
        fields = self.fields
        withheld = withheld_characters(fields) if self.traits.withholds_stop else 0
        undecided = 0 if withheld else undecided_characters(text, fields)
        count, skip = progress.resume_point(withheld, undecided, number(fields, "min_tokens") or 0)
        return PartialAnswer(
            path=self.path,
            body=body,
            text=text,
            tokens=progress.base + count + (skip > 0),  # the client has a part of the next token
            ids=progress.ids[:count] if not progress.base or prompt_ids is not None else None,
            skip=skip,
            prompt_ids=prompt_ids,
        )

    def _pieces(self) -> list[str] | None:
        """The text as its events brought it, if each had the text of one token."""
        pieces = self.progress.pieces
        return None if pieces is None or has_joined_tokens(pieces, self.fields) else pieces

    # --- what is left for the client: events with the id, the time and the model of the stream's first half

    def write_piece(self, piece: AnswerPiece) -> bytes:
        """The events that add ``piece``."""
        text, finish = piece.text, piece.finish
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["delta"] = {"content": text} if text or finish is None else {}
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": finish}
        if finish is not None and piece.stop_reason != ABSENT:
            choice["stop_reason"] = piece.stop_reason
        if piece.ids is not None:
            choice["token_ids"] = piece.ids
        usage = {} if piece.usage is None else {"usage": piece.usage}
        return self._event({"choices": [choice], **usage})

    def write_usage(self, usage: Mapping[str, Any]) -> bytes:
        """What tells the usage alone."""
        return self._event({"choices": [], "usage": usage})

    def write_choices(self, choices: msgspec.Raw) -> bytes:
        """An event with choices as another engine wrote them. Raises ``AnswerDiffers`` where there is no such event."""
        return self._event({"choices": choices})

    def write_end(self, text: str | None) -> bytes:
        """The end of the stream. ``text``: all that it says; ``None`` if that was too long to be kept.

        Raises ``AnswerDiffers`` if the end has to repeat a text that is not kept.
        """
        return DONE

    def _event(self, own: Mapping[str, Any]) -> bytes:
        return b"data: " + msgspec.json.encode({**(self.common or {}), **own}) + b"\n\n"

    def ending(self) -> bytes | None:
        self.read()
        if self.ended:
            return b""
        return None if self.why or self.common is None else self._ending()

    def _ending(self) -> bytes | None:
        last = b"" if self.finish is not None else self._full()
        if last is None:
            return None
        if not self.wants_usage:
            return last + self.write_end(None)
        usage = self._usage if self._usage is not None and self.finish is not None else self._made_usage()
        return None if usage is None else last + self.write_usage(usage) + self.write_end(None)

    def _full(self) -> bytes | None:
        """The event that ends an answer whose every token has been seen; ``None`` for an answer with room left."""
        limit = self.max_tokens
        seen = self.partial(b"")
        tokens = seen.events if seen.tokens is None else seen.tokens  # each event has one at least
        if limit is None or seen.skip or tokens < limit:
            return None
        return self.write_piece(AnswerPiece(finish="length"))

    def _made_usage(self) -> dict[str, Any] | None:
        made, prompt = self.progress.tokens(), self.prompt_tokens
        return None if made is None or prompt is None else self.usage_of_whole({}, prompt, made)

    def usage_of_whole(self, latest: Mapping[str, Any], prompt: int, made: int) -> dict[str, Any]:
        """Make the usage of an answer from several engines. Its details are those of the first one's prompt."""
        counts = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
        usage = {**{name: value for name, value in latest.items() if not name.endswith("_details")}, **counts}
        details = (self._usage or {}).get("prompt_tokens_details")
        self._usage = usage if details is None else {**usage, "prompt_tokens_details": details}
        return self._usage

    @property
    def prompt_tokens(self) -> int | None:
        progress = self.progress
        if progress.prompt_tokens is None and progress.prompt_ids is not None and not progress.base:
            progress.prompt_tokens = progress.prompt_ids.count(b",") + 1
        return progress.prompt_tokens
