"""The progress of an answer: the events it has come in, its text, its tokens, and which of them the client has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from enginehouse.continuers import AnswerDiffers, read_events

_STEPS_KEPT = 256
_PER_NUMBER = 40
"""In bytes: what a number in a list takes."""


class AnswerProgress(msgspec.Struct, forbid_unknown_fields=True):
    """Collects the text and the tokens of an answer, from one engine after the other. Another process can read it.

    - ``shows_ids``: the client gets the tokens too.
    - ``ends``: where in the text each event ended, ``None`` if an event may have several tokens.
    - ``chars``: the length of the client's text.
    - ``ids``: the tokens after ``prompt_ids``, ``None`` if an engine does not send them.
    - ``base``: how many tokens of the answer are part of ``prompt_ids``, which is JSON.
    - ``prompt_tokens``: the length of the client's own prompt.
    - ``counted``: the number of tokens by the engine's own count.
    - ``events``: how many tokens there are at least, one for each event with text.
    """

    shows_ids: bool = False
    ends: list[int] | None = None
    chars: int = 0
    base: int = 0
    ids: list[int] | None = []
    prompt_ids: bytes | None = None
    prompt_tokens: int | None = None
    counted: int | None = None
    events: int = 0
    _texts: list[str] = []
    _position: int = 0
    _seen: list[int] = []
    _start: int = 0
    _anchor: tuple[int, int] = (0, 0)
    _steps: list[tuple[int, int]] = []

    @property
    def text(self) -> str:
        """The client's text."""
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        return self._texts[0] if self._texts else ""

    @property
    def pieces(self) -> list[str] | None:
        """The client's text as its events brought it, if each had one token."""
        if self.ends is None or self.behind:
            return None
        text = self.text
        return [text[start:end] for start, end in zip([0, *self.ends], self.ends, strict=False)]

    @property
    def behind(self) -> bool:
        """Whether the engine has not made all of the client's text yet."""
        return self._position < self.chars

    @property
    def size(self) -> int:
        """The bytes that the text and the tokens take, roughly."""
        numbers = len(self.ids or ()) + len(self._seen) + len(self.ends or ())
        return self.chars + _PER_NUMBER * numbers + len(self.prompt_ids or b"")

    def forget(self) -> None:
        """Drop what only another engine would need, unless this one still repeats what the client has."""
        if not self.behind:
            self._texts.clear()
            self._steps.clear()
            self.ends = None
            if self.ids:
                self.ids.clear()

    def add(self, text: str, ids: list[int] | None) -> tuple[str, list[int]]:
        """Take the next piece of the engine's answer; returns the text and the tokens that are new to the client.

        Raises ``AnswerDiffers`` if it does not repeat what the client has.
        """
        if text:
            self.events += 1
        new_text = self._add_text(text) if text else ""
        new_ids = self._add_ids(ids, text)
        if text and self.ids is not None:
            self._steps.append((len(self.ids), self._position))
            if len(self._steps) > _STEPS_KEPT:
                del self._steps[0]
        return new_text, new_ids

    def _add_text(self, text: str) -> str:
        start = self._position
        self._position = end = start + len(text)
        if self.ends is not None:
            self.ends.append(end)
        if start < self.chars:
            known = min(len(text), self.chars - start)
            if self.text[start : start + known] != text[:known]:
                raise AnswerDiffers
            text = text[known:]
        if end > self.chars:
            self._texts.append(text)
            self.chars = end
        return text

    def _add_ids(self, ids: list[int] | None, text: str) -> list[int]:
        if ids is None:
            if text:
                self.ids = None
            return []
        if self.ids is None:
            return []
        self.ids += ids
        if not self._seen:
            return ids
        known = self._seen[: len(ids)]
        if known != ids[: len(known)]:
            raise AnswerDiffers
        self._seen = self._seen[len(ids) :]
        return ids[len(known) :]

    def tokens(self) -> int | None:
        """The number of tokens that the engines made, if it is known."""
        return self.counted if self.ids is None else self.base + len(self.ids)

    def resume_point(self, withheld: int, undecided: int, min_tokens: int) -> tuple[int, int]:
        """How many of ``ids`` the client has seen in full, and how many characters it has seen after them.

        An engine withholds text while it may be part of a stop string, and characters that are split between tokens.
        ``withheld``: how many characters this engine's text is behind its tokens. ``undecided``: the length of the end
        of the text that a stop string may begin with; the tokens before it are meant. Up to ``min_tokens`` engines
        differ in what they withhold, so these tokens are not relied on.
        """
        limit = self.chars - undecided
        for count, position in reversed(self._steps):
            if withheld and self.base + count <= min_tokens:
                break
            if position + withheld <= limit:
                return count, self.chars - position - withheld
        count, position = self._anchor
        return (count, self.chars - position) if position <= limit else (0, self.chars - self._start)

    def resume(self, tokens: int, skip: int, *, exact: bool) -> None:
        """Continue with an engine that was given the answer's first ``tokens``; ``exact``: by their ids, else as text.

        Its answer begins with the last ``skip`` characters of the client's text.
        """
        self._steps.clear()
        self.events = tokens
        self._position = self.chars - skip
        self.counted = None
        if self.ends is not None:
            self.ends = _up_to(self._position, self.ends)
        if exact and self.ids is not None:
            count = tokens - self.base
            if self.shows_ids:
                self._seen = self.ids[count:] + self._seen
            del self.ids[count:]
            self._anchor = (count, self._position)
        else:
            self.prompt_ids = None
            self.ids, self._seen, self.base = [], [], tokens
            self._start = self.chars if tokens else self._position
            self._anchor = (0, self._start)

    def learn_prompt(self, ids: msgspec.Raw) -> None:
        """Take the tokens that an engine read as its prompt, unless they are known; ``ids`` may be no list."""
        if self.prompt_ids is None and bytes(memoryview(ids)[:1]) == b"[":
            self.prompt_ids = bytes(ids)

    def copy(self) -> AnswerProgress:
        """An independent copy."""
        ids = None if self.ids is None else [*self.ids]
        ends = None if self.ends is None else [*self.ends]
        return msgspec.structs.replace(self, ids=ids, ends=ends, _texts=[self.text], _steps=[*self._steps])


class SavedStream(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a stream that its client has, from the engine of ``model`` at ``backend``.

    ``body``: the request as that engine got it, but for the fields that the gateway had added. ``common``: JSON values.
    """

    backend: str
    model: str
    body: bytes
    common: dict[str, bytes]
    roles: set[int]
    usage: dict[str, Any] | None
    progress: AnswerProgress


def _up_to(position: int, ends: list[int]) -> list[int] | None:
    """The ``ends`` up to ``position``, if that is one of them or the beginning."""
    kept = [end for end in ends if end <= position]
    return kept if (kept[-1] if kept else 0) == position else None


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
