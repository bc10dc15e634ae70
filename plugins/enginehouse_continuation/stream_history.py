"""The part of a stream that its client has, as another engine goes on with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse import Candidate
from enginehouse.continuers import StreamTokens, cutter, replace_model
from enginehouse.drivers import PartialAnswer, SupportsContinuation
from enginehouse_continuation.chunks import ABSENT, DONE, AnswerPiece
from enginehouse_continuation.kept_events import KeptEvents
from enginehouse_continuation.progress import SavedStream
from enginehouse_continuation.restrictions import (
    has_joined_tokens,
    number,
    undecided_characters,
    why_not,
    why_not_again,
    withheld_characters,
)


class StreamHistory(KeptEvents):
    """Knows whether another engine may go on with the stream, and what it is asked for."""

    # --- whether

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
    def chat(self) -> bool:
        return self.path == "/v1/chat/completions"

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
